"""Build Horovod's wheel once, keep it outside the checkout, and install it into this Python's virtual environment.

Horovod 0.28.1, the latest release, is published as source only. This script compiles it against the torch of this
environment, for CPUs and with Gloo only (no MPI, NCCL, TensorFlow or MXNet), after the edits below. It keeps the wheel
in ``$XDG_CACHE_HOME/bftrain/horovod`` (default: ``~/.cache/...``) under a name derived from the build inputs. Later
checkouts and new virtual environments then install it in seconds.

The exit code is nonzero if the build fails. Options: ``--if-possible`` accepts a machine that has no C++ compiler,
``--build-only`` does not install the wheel, and ``--if-kept`` only installs an existing wheel, or exits with 1. Needs
the standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

TOOLS: Final = Path(__file__).resolve().parent
HOROVOD: Final = "0.28.1"
SDIST_SHA256: Final = "92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"


class Edit(NamedTuple):
    """One change of the source: ``old`` occurs there exactly once."""

    file: str
    old: str
    new: str


EDITS: Final = (
    # torch's headers need C++17 since 2.1; Horovod's main branch has this fix, but no release
    Edit("CMakeLists.txt", "set(CMAKE_CXX_STANDARD 14)", "set(CMAKE_CXX_STANDARD 17)"),
    Edit("horovod/torch/CMakeLists.txt", "set(CMAKE_CXX_STANDARD 14)", "set(CMAKE_CXX_STANDARD 17)"),
    # With a CUDA build of torch and a CUDA compiler nearby, it would require all of CUDA
    Edit(
        "cmake/Modules/FindPytorch.cmake", 'string(TOUPPER "${Pytorch_CUDA}" Pytorch_CUDA)', "set(Pytorch_CUDA FALSE)"
    ),
    # The Gloo context of a process set forgets HOROVOD_GLOO_IFACE. It then listens on the host name's address:
    # 127.0.1.1 on Debian, and on other machines an address open to the network
    Edit(
        "horovod/common/gloo/gloo_context.cc",
        "  device_attr.iface = gloo_iface_;\n  device_attr.ai_family = AF_UNSPEC;\n"
        "  auto dev = CreateDevice(device_attr);\n\n  global_ctx = global_context.ctx;\n",
        "  device_attr.iface = gloo_iface_ = global_context.gloo_iface_;\n  device_attr.ai_family = AF_UNSPEC;\n"
        "  auto dev = CreateDevice(device_attr);\n\n  global_ctx = global_context.ctx;\n",
    ),
)
_PARTS = ("WITH_GLOO", "WITH_PYTORCH", "WITHOUT_MPI", "WITHOUT_TENSORFLOW", "WITHOUT_MXNET", "WITHOUT_NVTX")
OPTIONS: Final = {f"HOROVOD_{part}": "1" for part in _PARTS}
# Build requirements of its setup.py and CMake files; 81 is the first setuptools without pkg_resources
BUILD_TOOLS: Final = (
    "setuptools<81",
    "wheel",
    "packaging",
    "cmake>=3.18,<4",
    "cloudpickle",
    "psutil",
    "pyyaml",
    "cffi",
)
MB: Final = 1 << 20
JOB_MB: Final = 2500  # MB for one compilation; the largest takes 2400 MB
DISK_MB: Final = 1200
ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
OFFLINE: Final = re.compile(
    "name resolution|Name or service not known|NewConnectionError|ConnectTimeout|ReadTimeout|Network is unreachable"
    "|Connection refused|ProxyError|SSLError|Connection(Reset|Aborted)?Error|from versions: none"
)


class CannotBuild(Exception):
    """Raised if the build is impossible; the message has the reason and the fix."""


class NoCompiler(CannotBuild):
    """Raised if this machine cannot compile C++ for this Python, and we may not install the missing packages."""


def say(text: str) -> None:
    """Print a line immediately, for the user of make."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def torch_version() -> str:
    """Return the version of the torch that Horovod will use."""
    try:
        return version("torch")
    except PackageNotFoundError:
        raise CannotBuild("There is no torch in this environment. Install it with: make horovod") from None


def wheel_name() -> str:
    """Return a name derived from all build inputs: machines with the same name can share the wheel."""
    recipe = hashlib.sha256(repr((SDIST_SHA256, EDITS, OPTIONS)).encode()).hexdigest()[:12]
    python = f"{sys.implementation.cache_tag}{sys.abiflags}"
    system = f"{sysconfig.get_platform()}-{'-'.join(platform.libc_ver())}"
    return f"horovod-{HOROVOD}-{python}-torch-{torch_version()}-{system}-{recipe}"


def cache() -> Path:
    """Return the folder of the wheels."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser().absolute() / "bftrain" / "horovod"


def kept_wheel(place: Path) -> Path | None:
    """Return the built wheel in ``place``, or None. Wheels appear there atomically."""
    return next(place.glob("horovod-*.whl"), None)


def is_installed(name: str) -> bool:
    """Return whether this environment has the wheel of this name, with its library in place."""
    try:
        found = distribution("horovod")
    except PackageNotFoundError:
        return False
    # pip records the source of an installed wheel
    origin = urllib.parse.unquote(json.loads(found.read_text("direct_url.json") or "{}").get("url", ""))
    library = Path(str(found.locate_file("horovod/torch"))).glob("mpi_lib_v2*.so")
    return f"/{name}/" in origin and any(library)


def compiler() -> str | None:
    """Return the C++ compiler that builds will use, or None."""
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        if name and (found := shutil.which(name)):
            return found
    return None


def lacking() -> str:
    """Return the missing build requirement as text, or an empty string."""
    found = compiler()
    if found is None:
        return "there is no C++ compiler"
    include = sysconfig.get_path("include")
    if not Path(include, "Python.h").is_file():
        return f"the headers of this Python are missing ({include}/Python.h)"
    probe = "#include <Python.h>\n#include <filesystem>\nint main() { return std::filesystem::path().empty(); }\n"
    with tempfile.TemporaryDirectory() as place:
        command = [found, "-std=c++17", "-x", "c++", "-", f"-I{include}", "-c", "-o", f"{place}/probe.o"]
        said = subprocess.run(command, input=probe, capture_output=True, text=True, check=False)
    if said.returncode == 0:
        return ""
    wrong = [line for line in said.stderr.splitlines() if "error" in line] or said.stderr.splitlines() or ["no reason"]
    return f"{found} cannot compile C++17: {wrong[0]}"


def need_compiler() -> None:
    """Make sure that C++ can be compiled, by installing Debian's packages if permitted."""
    # A Python other than Debian's own must include its headers
    packages = ["g++", "python3-dev"] if sys.base_prefix == "/usr" else ["g++"]
    if lacking():
        subprocess.run([TOOLS / "debian-packages.sh", *packages], check=False)
    if what := lacking():
        helps = f"On Debian and Ubuntu, install what it needs with: apt-get install {' '.join(packages)}"
        if "headers" in what and sys.base_prefix != "/usr":
            helps = f"Install the development files of {sys.base_prefix}, or use another Python: make PYTHON=..."
        raise NoCompiler(f"Horovod cannot be built here: {what}.\n{helps}")


def jobs() -> int:
    """Return the number of parallel compilations, limited by our cores and by the free memory."""
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores, free_memory_mb() // JOB_MB))


def free_memory_mb() -> int:
    """Return the memory in MB available to us, on this machine and within our control group."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = min(int(line.split()[1]) // 1024 for line in lines if line.startswith("MemAvailable:"))
    group = Path("/proc/self/cgroup").read_text().rpartition("::")[2].strip()
    for place in (Path(f"/sys/fs/cgroup{group}"), *Path(f"/sys/fs/cgroup{group}").parents):
        with contextlib.suppress(OSError, ValueError):
            limit = int((place / "memory.max").read_text())
            free = min(free, (limit - int((place / "memory.current").read_text())) // MB)
    return free


def run(log: Path, *command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    """Run a command with its output in the log. All its processes are killed when we exit, whatever the reason."""
    with log.open("ab") as file:
        file.write(f"$ {' '.join(map(str, command))}\n".encode())
        file.flush()
        # A signal that stops us must not arrive between the start of the command and our record. The command
        # inherits the blocked signals; that is harmless, because it has its own session and is stopped by SIGKILL.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        running = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            code = running.wait()
        except BaseException:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
            raise
    if code:
        explain(log)


def explain(log: Path) -> NoReturn:
    """Raise an error with the cause of the failed step, as far as its log shows."""
    said = log.read_text(errors="replace").rpartition("\n$ ")[2]
    if re.search("No space left on device|Disk quota exceeded", said):
        raise CannotBuild(
            f"The disk is full: building Horovod needs {DISK_MB} MB in {tempfile.gettempdir()}.\n"
            f"Make room, or set TMPDIR to another disk. What was said is in {log}."
        )
    if OFFLINE.search(said):
        raise CannotBuild(
            "The network cannot be reached: pip could not download what Horovod needs.\n"
            "Check the connection, and the proxy or mirror that pip is told to use (pip config list).\n"
            f"What pip said is in {log}."
        )
    if re.search("Killed (signal|process)|signal terminated program", said):
        raise CannotBuild(f"A compilation was killed, most likely for want of memory ({JOB_MB} MB). See {log}.")
    # Compilers report an error long before make and pip exit
    lines = said.splitlines()
    wrong = [line for line in lines if re.search(r"\berror:|CMake Error", line)][:4]
    words = "\n".join([*wrong, *(line for line in lines[-6:] if line not in wrong)])
    raise CannotBuild(f"A step on the way to Horovod failed. From its log, {log}:\n{words}")


def pip_env(**more: str) -> dict[str, str]:
    """Return our environment, minus user settings and variables of a parent make that would affect a build."""
    ours = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MFLAGS", "MAKELEVEL"}}
    quiet = {"PIP_USER": "0", "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_PROGRESS_BAR": "off"}
    # By default pip tries five times, for a minute, before it reports a missing network
    return ours | quiet | {"PIP_RETRIES": os.environ.get("PIP_RETRIES") or "2"} | more


def build(place: Path, log: Path) -> Path:
    """Build the wheel in a separate directory, and move it into ``place`` atomically."""
    with tempfile.TemporaryDirectory(prefix="bftrain-horovod-") as name:
        work = Path(name)
        python = build_environment(work, log)
        source = edited_source(work, python, log)
        env = pip_env(**OPTIONS, MAKEFLAGS=f"-j{jobs()}", CXX=compiler() or "c++")
        env["PATH"] = f"{python.parent}{os.pathsep}{env['PATH']}"
        how = ("-v", "--no-build-isolation", "--no-deps", "--no-cache-dir")
        run(log, python, "-m", "pip", "wheel", *how, "--wheel-dir", work, ".", cwd=source, env=env)
        built = next(work.glob("horovod-*.whl"))
        half = place / f"{built.name}.half"
        shutil.copyfile(built, half)
        with half.open("rb") as file:
            os.fsync(file.fileno())
        return half.replace(place / built.name)


def build_environment(work: Path, log: Path) -> Path:
    """Create a virtual environment with the build tools and access to our torch; return its Python."""
    run(log, sys.executable, "-m", "venv", work / "tools", env=pip_env())
    python = work / "tools" / "bin" / "python"
    run(log, python, "-m", "pip", "install", "-q", *BUILD_TOOLS, env=pip_env())
    own = next((work / "tools" / "lib").glob("python3*/site-packages"))
    (own / "ours.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def edited_source(work: Path, python: Path, log: Path) -> Path:
    """Download Horovod's source, check its hash, and edit it."""
    wanted = work / "wanted.txt"
    wanted.write_text(f"horovod=={HOROVOD} --hash=sha256:{SDIST_SHA256}\n")
    how = ("--require-hashes", "--no-deps", "--no-build-isolation", "--no-binary=horovod")
    run(log, python, "-m", "pip", "download", "-q", *how, "--dest", work, "-r", wanted, env=pip_env(**OPTIONS))
    with tarfile.open(work / f"horovod-{HOROVOD}.tar.gz") as file:
        if hasattr(tarfile, "data_filter"):  # missing in the first releases of Python 3.11
            file.extraction_filter = tarfile.data_filter
        file.extractall(work)  # noqa: S202 - pip has compared its checksum with ours
    source = work / f"horovod-{HOROVOD}"
    for edit in EDITS:
        text = (source / edit.file).read_text()
        if text.count(edit.old) != 1:
            raise CannotBuild(f"An edit does not fit {edit.file} of Horovod {HOROVOD}; the edits are in {__file__}.")
        (source / edit.file).write_text(text.replace(edit.old, edit.new))
    return source


@contextlib.contextmanager
def locked(path: Path, waiting: str = "") -> Iterator[None]:
    """Lock a file; continue unlocked where locks are unsupported (some network file systems)."""
    with contextlib.ExitStack() as stack:
        descriptor = os.open(path, os.O_RDONLY | (0 if path.is_dir() else os.O_CREAT), 0o600)
        stack.callback(os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting:
                say(waiting)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:
            pass
        yield


def wheel(name: str) -> Path:
    """Return the wheel of this name; builds it if necessary."""
    place = cache() / name
    if (kept := kept_wheel(place)) is not None:
        return kept
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    with locked(cache() / "lock", f"Waiting for another build of Horovod ({cache()}) ..."):
        if (kept := kept_wheel(place)) is not None:
            return kept
        need_compiler()
        log = place / "build.log"
        log.write_bytes(b"")
        say(f"Building Horovod {HOROVOD} for torch {torch_version()}; this takes minutes, once (log: {log}) ...")
        started = time.monotonic()
        built = build(place, log)
        say(f"Built in {time.monotonic() - started:.0f} s.")
        return built


def install(built: Path) -> None:
    """Install the wheel here. First removes another build of the same version, which pip would take for this one."""
    with locked(TOOLS):
        log = built.parent / "install.log"
        log.write_bytes(b"")
        python = Path(sys.executable)
        before = packages()
        run(log, python, "-m", "pip", "uninstall", "-q", "-y", "horovod", env=pip_env())
        run(log, python, "-m", "pip", "install", "-q", built, env=pip_env())
        record = Path(sys.prefix, ".bftrain", "packages")  # written by tools/venv.sh: the packages that make installed
        if record.exists():
            ours = {*record.read_text().split(), *(packages() - before)}
            record.write_text("".join(f"{name}\n" for name in sorted(ours)))


def packages() -> set[str]:
    """Return the package names in this environment, as their folders spell them."""
    return {info.name.rpartition("-")[0] for info in Path(sysconfig.get_path("purelib")).glob("*.dist-info")}


def main(arguments: list[str]) -> int:
    """Install Horovod into this environment; return the exit code."""
    # Exit as with Ctrl-C, so that child processes stop and the work directory is removed
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: sys.exit(128 + received))
    try:
        name = wheel_name()
        if is_installed(name):
            return 0
        if "--if-kept" in arguments and kept_wheel(cache() / name) is None:
            return 1
        built = wheel(name)
        if "--build-only" not in arguments:
            install(built)
    except CannotBuild as reason:
        excused = isinstance(reason, NoCompiler) and "--if-possible" in arguments
        sys.stderr.write(f"{reason}\n")
        if excused:
            sys.stderr.write("The tests that need Horovod will skip.\n")
        return 0 if excused else 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
