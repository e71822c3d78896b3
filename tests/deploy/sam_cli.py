"""The SAM command line, and a MiniStack that understands what it sends."""

from __future__ import annotations

import fcntl
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from emulators import DIRECTORY, ROOT, Program, Unavailable, ministack

SAM = ROOT / ".venv-sam/bin/sam"
TEMPLATE = ROOT / "template.yaml"

AWS = {
    "SAM_CLI_TELEMETRY": "0",
    "SAM_CLI_POLL_DELAY": "0.2",
    # not others than in this process: clients share the credentials that the first one found
    **{name: os.environ[name] for name in ("AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")},
}


@dataclass(frozen=True)
class Sam:
    """Runs `sam` in the project's root, with an environment that reaches the emulator and nothing else."""

    endpoint: str

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(SAM), *arguments],
            cwd=ROOT,
            env={**os.environ, **AWS, "AWS_ENDPOINT_URL": self.endpoint, **environment},
            text=True,
            capture_output=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"sam {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
        return done

    def deploy(self, stack: str, template: Path | None = None, /, **parameters: str) -> None:
        """Deploys what was built last, or another built template; without parameters, those of its defaults."""
        given = [f"{name}={value}" for name, value in parameters.items()]
        self.run(
            *("deploy", "--resolve-s3", "--capabilities", "CAPABILITY_IAM", "--no-confirm-changeset"),
            *("--stack-name", stack),
            *(("--template-file", str(template)) if template else ()),
            *(("--parameter-overrides", *given) if given else ()),
        )


def ministack_with_sam(port: int) -> Program:
    """MiniStack with aws-sam-translator, without which it refuses the templates that `sam deploy` sends."""
    program = ministack(port)
    python = program.command[0]
    with (DIRECTORY / "ministack.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not [*Path(python).parents[1].glob("lib/*/site-packages/samtranslator")]:
            version = _run(python, "-c", "import botocore; print(botocore.__version__)")
            # The boto3 it needs, in the version that MiniStack's botocore fits.
            _run(python, "-m", "pip", "install", "--quiet", "aws-sam-translator", f"boto3=={version}")
    return program


def _run(*command: str) -> str:
    done = subprocess.run(command, text=True, capture_output=True, timeout=300, check=False)
    if done.returncode:
        raise Unavailable(f"{' '.join(command)}: {done.stderr[-500:]}")
    return done.stdout.strip()
