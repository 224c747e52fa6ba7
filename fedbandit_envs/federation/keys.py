"""The keys of SuperNodes, in the forms of OpenSSH and of Flower. It needs `cryptography`, which Flower brings."""

import os
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedbandit_envs.federation.owners import key_fingerprint
from fedbandit_envs.storage import write_whole


def fingerprint_of_pem(public_key: bytes) -> str:
    """The fingerprint of a public key in the form in which Flower keeps it, as `key_fingerprint` writes it."""
    key = serialization.load_pem_public_key(public_key)
    line = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return key_fingerprint(line.decode())


def client_key(folder: Path) -> tuple[Path, str]:
    """The key of the client with this folder: its private file, and its fingerprint. It is made at the first call.

    `ssh-keygen -t ecdsa -b 384 -f key` makes the same files.
    """
    file, public = folder / "key", folder / "key.pub"
    if not public.exists():
        folder.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP384R1())
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
        file.unlink(missing_ok=True)
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            opened.write(private)
        line = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        write_whole(public, line + b"\n")
    return file, key_fingerprint(public.read_text())
