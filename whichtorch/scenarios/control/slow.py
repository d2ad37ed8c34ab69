# /// scenario
# summary = "takes its time and ends well, while looking much like a hang"
# tags = ["control"]
# timeout = 120
# on_request = true
# expect = [{ outcome = "pass" }]
# [variants]
# work = ["sleep", "subprocess", "output", "compile"]
# ///
import ast
import os
import subprocess
import sys
import time

SECONDS = float(os.environ.get("WHICHTORCH_SECONDS", "20"))
CHILD = """
import sys, time
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    time.sleep(0.5)
    sum(range(10**6))
"""


def sleep():
    time.sleep(SECONDS)


def wait_for_child():
    subprocess.run([sys.executable, "-c", CHILD, str(SECONDS)], check=True)


def print_now_and_then():
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        print(round(end - time.monotonic()), "seconds left", flush=True)
        time.sleep(1)


def compile_for_long():
    """Burn CPU as a compiler does: deep recursion over trees, ever other functions."""
    end = time.monotonic() + SECONDS
    size = 0
    while time.monotonic() < end:
        size = size % 200 + 1
        source = "+".join("(x{0} * {0} - y)".format(n) for n in range(size))
        tree = ast.parse(source, mode="eval")
        folded = ast.fix_missing_locations(Fold().visit(tree))
        compile(folded, "<folded>", "eval")
        ast.dump(folded)


class Fold(ast.NodeTransformer):
    """Replace multiplications by zero or one."""

    def visit_BinOp(self, node):
        self.generic_visit(node)
        if isinstance(node.op, ast.Mult) and isinstance(node.right, ast.Constant):
            if node.right.value == 0:
                return ast.copy_location(ast.Constant(0), node)
            if node.right.value == 1:
                return node.left
        return node


work = os.environ.get("WHICHTORCH_WORK", "sleep")
{
    "sleep": sleep,
    "subprocess": wait_for_child,
    "output": print_now_and_then,
    "compile": compile_for_long,
}[work]()
print(work, "is done")
