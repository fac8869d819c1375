"""https on the gateway's own listener, with real clients, and a certificate that is renewed while it runs."""

import datetime
import ipaddress
import signal
import socket
import ssl
import subprocess
import time

import anthropic
import httpx
import pytest
from conftest import BINARY, INFERENCE_KEY, start_gateway
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)
PEM = serialization.Encoding.PEM


class Authority:
    """Somebody who vouches for names."""

    def __init__(self):
        self.key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        self.certificate = self.sign(name, self.key, name, [(x509.BasicConstraints(ca=True, path_length=0), True)])

    def sign(self, subject, key, issuer, extensions):
        now = datetime.datetime.now(datetime.timezone.utc)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(self.key, hashes.SHA256())

    def vouch(self, folder):
        """A new certificate for this machine, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gateway")])
        alternatives = (x509.SubjectAlternativeName(names), False)
        certificate = self.sign(subject, key, self.certificate.subject, [alternatives])
        (folder / "cert.pem").write_bytes(certificate.public_bytes(PEM) + self.certificate.public_bytes(PEM))
        plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        (folder / "key.pem").write_bytes(key.private_bytes(PEM, *plain))
        return certificate


@pytest.fixture(scope="module")
def authority():
    return Authority()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def gateway(upstream, authority, folder):
    authority.vouch(folder)
    (folder / "ca.pem").write_bytes(authority.certificate.public_bytes(PEM))
    settings = f"""tls_certificate = "file:{folder}/cert.pem"
tls_key = "file:{folder}/key.pem"
[limits]
tls_handshake_ms = 300
"""
    process = start_gateway(upstream, folder, settings)
    yield process
    process.stop()


def trusting(folder):
    return ssl.create_default_context(cafile=folder / "ca.pem")


def test_the_sdk_talks_over_https(gateway, folder):
    assert gateway.url.startswith("https://")
    with anthropic.Anthropic(
        base_url=gateway.url,
        api_key=INFERENCE_KEY,
        http_client=anthropic.DefaultHttpxClient(verify=trusting(folder)),
        max_retries=0,
    ) as client:
        asked = {"model": "test/sim", "max_tokens": 32, "messages": [{"role": "user", "content": "hi"}]}
        assert client.messages.create(**asked).content[0].text
        with client.messages.stream(**asked) as stream:
            assert "".join(stream.text_stream)


@pytest.mark.parametrize(("offered", "chosen"), [(["h2", "http/1.1"], "h2"), (["http/1.1"], "http/1.1"), ([], None)])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_protocols_are_agreed_on(gateway, folder, offered, chosen, version):
    context = trusting(folder)
    context.minimum_version = context.maximum_version = version
    if offered:
        context.set_alpn_protocols(offered)
    address = ("127.0.0.1", httpx.URL(gateway.url).port)
    with socket.create_connection(address) as raw, context.wrap_socket(raw, server_hostname="localhost") as stream:
        assert stream.selected_alpn_protocol() == chosen
        if chosen != "h2":
            stream.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            assert stream.recv(100).startswith(b"HTTP/1.1 200")


def test_curl_speaks_http2(gateway, folder):
    words = ["curl", "-sS", "--http2", "--cacert", folder / "ca.pem", "-o", "/dev/null", "-w", "%{http_version} %{http_code}"]
    answer = subprocess.run([*words, f"{gateway.url}/healthz"], check=True, capture_output=True, text=True, timeout=20)
    assert answer.stdout == "2 200"


def test_who_speaks_plain_http_is_told(gateway):
    answer = httpx.get(gateway.url.replace("https://", "http://") + "/healthz")
    assert (answer.status_code, answer.text) == (400, "This port speaks https: put https:// in front.\n")


def test_a_handshake_that_does_not_come_ends_the_connection(gateway):
    for said in [b"", b"\x16", b"\x16\x03\x01\x00\xff\x01"]:
        with socket.create_connection(("127.0.0.1", httpx.URL(gateway.url).port)) as stream:
            stream.sendall(said)
            stream.settimeout(20)
            assert stream.recv(10) == b""


def test_a_renewed_certificate_is_used_after_a_reload(gateway, authority, folder):
    address = ("127.0.0.1", httpx.URL(gateway.url).port)

    def shown():
        with socket.create_connection(address) as raw:
            with trusting(folder).wrap_socket(raw, server_hostname="localhost") as stream:
                return x509.load_der_x509_certificate(stream.getpeercert(binary_form=True)).serial_number

    with httpx.Client(verify=trusting(folder)) as kept:
        assert kept.get(f"{gateway.url}/healthz").status_code == 200
        renewed = authority.vouch(folder)
        assert shown() != renewed.serial_number
        gateway.child.send_signal(signal.SIGHUP)
        until = time.monotonic() + 30
        while shown() != renewed.serial_number:
            assert time.monotonic() < until
        assert kept.get(f"{gateway.url}/healthz").status_code == 200, "connections stay"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ('tls_certificate = "file:cert.pem"', "service.tls_key: is missing"),
        ('tls_key = "file:key.pem"', "service.tls_certificate: is missing"),
        ('tls_certificate = "file:none.pem"\ntls_key = "file:key.pem"', "service.tls_certificate: secret file"),
        ('tls_certificate = "file:key.pem"\ntls_key = "file:key.pem"', "service.tls_certificate: holds no certificate"),
        ('tls_certificate = "file:cert.pem"\ntls_key = "file:cert.pem"', "service.tls_key: holds no private key"),
        ('tls_certificate = "file:cert.pem"\ntls_key = "file:other.pem"', "service.tls_key: is not the key of"),
    ],
)
def test_what_is_wrong_is_named(authority, tmp_path, settings, problem):
    authority.vouch(tmp_path)
    (tmp_path / "key.pem").rename(tmp_path / "other.pem")
    authority.vouch(tmp_path)
    config = tmp_path / "tidegate.toml"
    config.write_text(f"[service]\n{settings}\n")
    words = [BINARY, "check", "--offline", "--config", str(config), "--data-dir", str(tmp_path)]
    said = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    assert (said.returncode, problem in said.stdout + said.stderr) == (1, True), said
    assert "PRIVATE KEY" not in said.stdout + said.stderr
