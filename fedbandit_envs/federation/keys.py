"""Keys of SuperNodes, and the certificate of a SuperLink on this machine, by means of Flower's `cryptography`."""

import os
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedbandit_envs.federation.owners import key_fingerprint
from fedbandit_envs.federation.texts import shown
from fedbandit_envs.storage import write_whole


def fingerprint_of_pem(public_key: bytes) -> str:
    """The fingerprint of a public key in the form in which Flower keeps it, as `key_fingerprint` writes it.

    If it can't be read as a key, the result is a text that no list of owners holds. So a stranger is refused like any
    other, and can't end the run with an unreadable key.
    """
    try:
        key = serialization.load_pem_public_key(public_key)
        line = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return "an unreadable key, " + shown(repr(public_key), 60)
    return key_fingerprint(line.decode())


def client_key(folder: Path) -> tuple[Path, str]:
    """The key of the client with this folder: its private file, and its fingerprint. It is made at the first call.

    `ssh-keygen -t ecdsa -b 384 -f key` makes the same files.
    """
    file, public = folder / "key", folder / "key.pub"
    if not public.exists():
        folder.mkdir(parents=True, exist_ok=True)
        key = _new_key(file, serialization.PrivateFormat.OpenSSH)
        line = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        write_whole(public, line + b"\n")
    return file, key_fingerprint(public.read_text())


def _new_key(file: Path, form: serialization.PrivateFormat) -> ec.EllipticCurvePrivateKey:
    """A new private key, written to a file that its owner alone can read."""
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    file.unlink(missing_ok=True)
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(private)
    return key


def new_certificate(folder: Path, host: str) -> tuple[Path, Path]:
    """A new certificate for a server at this address of loopback, signed by itself: its file, and that of its key."""
    file, key_file = folder / "server.crt", folder / "server.key"
    key = _new_key(key_file, serialization.PrivateFormat.PKCS8)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "fedbandit federate")])
    names = [x509.IPAddress(ip_address(host)), x509.DNSName("localhost")]
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=365))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    write_whole(file, certificate.public_bytes(serialization.Encoding.PEM))
    return file, key_file
