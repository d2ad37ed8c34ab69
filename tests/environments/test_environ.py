"""What a cell sees of the shell that the tool was started in."""

from pathlib import Path

from whichtorch.environments.configs import cell_environ_of, recorded, side_packages_folder
from whichtorch.inside.startup import FOLDER
from whichtorch.model import Config

PYTHON = Path("/envs/one/bin/python")


def test_the_config_is_the_whole_story() -> None:
    """Nothing of the user's that steers Python, torch or its threads reaches a cell; the rest does."""
    foreign = (
        *("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV", "CONDA_PREFIX", "OMP_NUM_THREADS"),
        *("GOMP_CPU_AFFINITY", "KMP_AFFINITY", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TORCH_LOGS"),
        *("TORCHINDUCTOR_CACHE_DIR", "PYTORCH_CUDA_ALLOC_CONF", "LD_PRELOAD", "UV_INDEX", "PIP_INDEX_URL"),
        "WHICHTORCH_HOOKS",
    )
    environ = dict.fromkeys(foreign, "secret") | {"PATH": "/bin", "HOME": "/me", "CUDA_VISIBLE_DEVICES": "0"}
    assert cell_environ_of(Config(name="default"), PYTHON, None, environ) == {
        "PATH": "/envs/one/bin:/bin",
        "HOME": "/me",
        "CUDA_VISIBLE_DEVICES": "0",
        "PYTHONPATH": str(FOLDER),
        "PYTHONFAULTHANDLER": "1",
        "PYTHONUNBUFFERED": "1",
    }


def test_a_config_adds_variables_and_hooks() -> None:
    """Variables may name the folder of side installs; hooks are told by their names."""
    config = Config(name="x", env={"LD_PRELOAD": "{beside}/lib/a.so", "OMP_NUM_THREADS": "1"}, hooks=("a", "b"))
    env = cell_environ_of(config, PYTHON, Path("/beside"), {})
    assert env["LD_PRELOAD"] == "/beside/lib/a.so"
    assert env["OMP_NUM_THREADS"] == "1"
    assert env["WHICHTORCH_HOOKS"] == "a,b"


def test_a_configs_import_path_comes_after_the_hooks() -> None:
    """A config may add to PYTHONPATH without losing the hooks, and to PATH without losing the environment's Python."""
    env = cell_environ_of(Config(name="x", env={"PYTHONPATH": "/extra", "PATH": "/tools"}), PYTHON, None, {})
    assert (env["PYTHONPATH"], env["PATH"]) == (f"{FOLDER}:/extra", "/envs/one/bin:/tools")


def test_side_installs_are_shared_by_python(tmp_path: Path) -> None:
    """The same requirements for the same minor Python are one folder."""
    config = Config(name="x", beside=("a", "b"))
    folder = side_packages_folder(config, "3.11.7", tmp_path)
    assert folder == side_packages_folder(Config(name="y", beside=("b", "a")), "3.11", tmp_path)
    assert folder != side_packages_folder(config, "3.12.1", tmp_path)
    free = side_packages_folder(config, "3.13.5t", tmp_path)
    assert free == side_packages_folder(config, "3.13t", tmp_path) != side_packages_folder(config, "3.13.5", tmp_path)
    assert side_packages_folder(Config(name="x"), "3.11", tmp_path) is None


def test_only_what_can_matter_is_recorded() -> None:
    """The config's variables and the allowed ones of the shell are recorded, a secret's name without its value."""
    config = Config(name="x", env={"OMP_NUM_THREADS": "1", "HUB_TOKEN": "abc"})
    shell = {"HOME": "/me", "USER": "me", "CUDA_HOME": "/cuda", "CCACHE_DIR": "/c", "CC": "gcc", "LC_ALL": "C"}
    shell |= {"OMP_PROC_BIND": "true", "LANGUAGE": "de", "AWS_PROFILE": "work", "PATH": "/bin"}
    assert recorded(cell_environ_of(config, PYTHON, None, shell), config) == {
        "CC": "gcc",
        "CUDA_HOME": "/cuda",
        "HUB_TOKEN": "<token>",
        "LC_ALL": "C",
        "OMP_NUM_THREADS": "1",
    }
