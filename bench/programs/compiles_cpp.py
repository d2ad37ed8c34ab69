# a C++ compiler alone, on a source with many templates
import os
import subprocess
import tempfile

HEADERS = ["algorithm", "functional", "map", "regex", "string", "tuple", "unordered_map", "variant", "vector"]
source = "".join(f"#include <{name}>\n" for name in HEADERS)
source += "".join(
    f"struct S{n} {{ int v; }}; std::map<std::string, std::vector<std::tuple<S{n}, int>>> m{n};\n"
    f'bool f{n}(const std::string& s) {{ m{n}[s].push_back({{S{n}{{{n}}}, {n}}}); return std::regex_match(s, std::regex("a{n}")); }}\n'
    for n in range(24)
)
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "many.cpp")
    with open(path, "w") as file:
        file.write(source)
    subprocess.run(["g++", "-std=c++17", "-O2", "-c", path, "-o", path + ".o"], check=True)
