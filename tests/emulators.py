"""Emulators of AWS for the tests: installed once into `.emulators/` and `.venv-ministack/`, started on free ports.

    with running(dynamodb_local) as url: ...

MiniStack has an environment of its own because it pins botocore to one version, which is older than ours.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

__all__ = [
    "Program",
    "Unavailable",
    "browser_script",
    "dynamodb_local",
    "free_port",
    "ministack",
    "node_packages",
    "running",
    "unavailable",
]

ROOT = Path(__file__).resolve().parent.parent
DIRECTORY = ROOT / ".emulators"
DYNAMODB_LOCAL = "amplify-dynamodb-simulator@2.9.30"  # the npm package that carries AWS's jar
SCRIPTS = {"mermaid": ("mermaid@11", "dist/mermaid.min.js"), "iframe-worker": ("iframe-worker@1", "shim/index.js")}
MINISTACK = "ministack==1.5.33"
TYPESCRIPT = ("typescript@7.0.2", "@types/node@20.19.43")
PACKAGES = {
    "cdk": ("aws-cdk-lib@2.275.0", "aws-cdk@2.1148.1", "constructs@10.8.1", *TYPESCRIPT),
    "typescript": ("@aws-sdk/client-dynamodb@3.1169.0", "@aws-sdk/lib-dynamodb@3.1169.0", *TYPESCRIPT),
}


class Unavailable(Exception):
    """The machine lacks what an emulator needs, or it did not start. The message says what to install."""


def unavailable(what: object) -> NoReturn:
    """Skip a test; fail it where REQUIRE_EMULATORS is set, as in CI."""
    import pytest  # the documentation is built where it is not installed

    (pytest.fail if os.environ.get("REQUIRE_EMULATORS") else pytest.skip)(str(what))


@dataclass(frozen=True)
class Program:
    command: list[str]
    directory: Path
    environment: dict[str, str] = field(default_factory=dict)


def dynamodb_local(port: int) -> Program:
    """AWS's own engine for one machine, in memory."""
    for program in ("java", "npm"):
        if shutil.which(program) is None:
            raise Unavailable(f"DynamoDB Local needs {program}, which is not on PATH")
    home = _installed("dynamodb-local", lambda home: _unpack(DYNAMODB_LOCAL, home))
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]  # for its few seconds, half the CPU of what a server has
    command = ["java", *quick, "-Xmx512m", "-Djava.library.path=emulator/DynamoDBLocal_lib"]
    return Program([*command, "-jar", "emulator/DynamoDBLocal.jar", "-inMemory", "-port", str(port)], home)


def ministack(port: int) -> Program:
    """A server for many AWS services; it also runs deployed functions."""
    _installed("ministack", _install_ministack)
    python = ROOT / ".venv-ministack" / "bin" / "python"
    environment = {"GATEWAY_PORT": str(port), "LOG_LEVEL": "WARNING"}
    return Program([str(python), "-m", "ministack"], DIRECTORY / "ministack", environment)


@contextmanager
def running(program: Callable[[int], Program], **environment: str) -> Iterator[str]:
    """Starts an emulator and stops it at the end; its address. Its output is in `.emulators/<name>.log`."""
    port = free_port()
    started = program(port)
    log = DIRECTORY / f"{program.__name__}-{port}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            started.command,
            cwd=started.directory,
            env={**os.environ, **started.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        _await(process, f"http://127.0.0.1:{port}", log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.unlink(missing_ok=True)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _await(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    for _ in range(600):
        if process.poll() is not None:
            raise Unavailable(f"{process.args!r} ended at once: {log.read_text(errors='replace')[-2000:]}")
        try:
            urllib.request.urlopen(url, timeout=2)
        except urllib.error.HTTPError:
            return  # it answers: a bare GET is no request it knows
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise Unavailable(f"{process.args!r} does not answer: {log.read_text(errors='replace')[-2000:]}")


def _installed(name: str, install: Callable[[Path], None]) -> Path:
    """The home of an emulator, filled by `install` the first time; processes that come at once wait for one."""
    DIRECTORY.mkdir(exist_ok=True)
    home = DIRECTORY / name
    with (DIRECTORY / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.exists():
            with tempfile.TemporaryDirectory(dir=DIRECTORY) as work:
                try:
                    install(Path(work) / "home")
                except (subprocess.CalledProcessError, OSError) as error:
                    output = getattr(error, "stderr", None) or b""
                    raise Unavailable(f"{name} cannot be installed: {error} {output.decode()[-500:]}") from error
                (Path(work) / "home").rename(home)
    return home


def browser_script(name: str) -> Path:
    """One of SCRIPTS as a browser loads it: not an emulator, but installed like one."""
    if shutil.which("npm") is None:
        raise Unavailable(f"{name} is fetched with npm, which is not on PATH")
    package, path = SCRIPTS[name]
    return _installed(name, lambda home: _unpack(package, home)) / path


def node_packages(name: str) -> Path:
    """The directory of `node_modules` with some of PACKAGES."""
    if shutil.which("npm") is None:
        raise Unavailable(f"packages for {name} are installed with npm, which is not on PATH")

    def install(home: Path) -> None:
        home.mkdir()
        (home / "package.json").write_text('{"private": true}')
        _run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--no-save", *PACKAGES[name]], home)

    return _installed(name, install)


def _unpack(package: str, home: Path) -> None:
    """The contents of an npm package, without what it depends on."""
    home.mkdir()
    _run(["npm", "pack", "--silent", package], home)
    (archive,) = home.glob("*.tgz")
    _run(["tar", "xzf", archive.name, "--strip-components=1"], home)
    archive.unlink()


def _install_ministack(home: Path) -> None:
    home.mkdir()
    environment = ROOT / ".venv-ministack"
    if environment.is_symlink():  # of another clone, which `clear` would empty
        environment.unlink()
    venv.create(environment, with_pip=True, clear=True)
    uv = Path(sys.executable).parent / "uv"
    python = str(environment / "bin" / "python")
    if uv.exists():
        _run([str(uv), "pip", "install", "--quiet", "--python", python, MINISTACK], home)
    else:
        _run([python, "-m", "pip", "install", "--quiet", MINISTACK], home)


def _run(command: list[str], directory: Path) -> None:
    subprocess.run(command, cwd=directory, check=True, capture_output=True, stdin=subprocess.DEVNULL)
