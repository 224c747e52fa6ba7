"""The commands of a clone for those without bash: `nox -s lint`, `nox -s tests`, `nox -s docs`."""

import nox

nox.options.sessions = ["lint", "tests"]
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and types."""
    session.install(".[dev]")  # not editable: type checkers can't follow the folder names of an editable install
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy", "-p", "fedbandit_envs", "-p", "fedbandit_agents", "-p", "fedbandit_baselines")


@nox.session
def tests(session: nox.Session) -> None:
    """Run the fast suite, or what is named after `--`."""
    session.install("-e", ".[test]")
    arguments = session.posargs or ["-q", "-m", "not slow and not study"]
    session.run("python", "-m", "pytest", *arguments, env=ONE_THREAD)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site into docs/_build/html."""
    session.install("-e", ".[docs]")
    arguments = ["-q", "-W", "--keep-going", "-b", "html", *session.posargs, "docs", "docs/_build/html"]
    session.run("python", "-m", "sphinx", *arguments, env=ONE_THREAD)
