"""A build-time proxy's certificates: trusted while building, and found wherever they would be left behind. In a
directory that stands for an image's root, with authorities that are made here."""

import atexit
import functools
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "container" / "extra-cas"
PRODUCT = "/O=Zscaler Inc./CN=Zscaler Root CA"


def make_ca(directory, name, subject):
    certificate = directory / f"{name}.crt"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days",
                    "2", "-subj", subject, "-keyout", "/dev/null", "-out", certificate], check=True,
                   capture_output=True)
    return certificate


@functools.cache
def authorities():
    """A directory with the proxy's certificate in extra/, a product's, and three that are like public ones."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="extra-cas-"))
    atexit.register(shutil.rmtree, directory)
    (directory / "extra").mkdir()
    make_ca(directory / "extra", "proxy", "/O=Example/CN=A proxy of somebody's")
    make_ca(directory, "product", PRODUCT)
    for number in range(3):
        make_ca(directory, f"public{number}", f"/O=A public authority/CN=Root {number}")
    return directory


@functools.cache
def keystore_of(certificates):
    """Java starts slowly, so that each keystore is made once."""
    target = authorities() / ("-".join(certificate.stem for certificate in certificates) + ".keystore")
    for certificate in certificates:
        subprocess.run(["keytool", "-importcert", "-noprompt", "-storepass", "changeit", "-keystore", target,
                        "-alias", certificate.stem, "-file", certificate], check=True, capture_output=True)
    return target


class ExtraCas(unittest.TestCase):
    def setUp(self):
        """The root of an image that trusts three authorities."""
        self.authorities = authorities()
        self.extra, self.product = self.authorities / "extra" / "proxy.crt", self.authorities / "product.crt"
        self.public = sorted(self.authorities.glob("public*.crt"))
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="extra-cas-root-"))
        self.addCleanup(shutil.rmtree, self.root)
        for place in ("usr/share/ca-certificates/public", "usr/local/share/ca-certificates", "etc/ssl/certs/java",
                      "etc/ca-certificates/update.d", "opt"):
            (self.root / place).mkdir(parents=True)
        for certificate in self.public:
            shutil.copy(certificate, self.root / "usr/share/ca-certificates/public" / certificate.name)
        (self.root / "etc/ca-certificates.conf").write_text("".join(f"public/{c.name}\n" for c in self.public))
        self.must("remove")

    def run_it(self, *words, path="/usr/sbin:/usr/bin:/sbin:/bin"):
        return subprocess.run(["/bin/sh", SCRIPT, *map(str, words)], capture_output=True, text=True,
                              env={"PATH": path, "EXTRA_CAS_ROOT": str(self.root)})

    def must(self, *words):
        done = self.run_it(*words)
        self.assertEqual(done.returncode, 0, done.stderr)

    def check(self):
        return self.run_it("check", self.authorities / "extra")

    def refused(self, *texts):
        done = self.check()
        self.assertEqual(done.returncode, 1, "the check passes")
        for text in texts:
            self.assertIn(text, done.stderr)

    @property
    def bundle(self):
        return self.root / "etc/ssl/certs/ca-certificates.crt"

    def keystore(self, place, *certificates):
        target = self.root / place
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(keystore_of(certificates), target)

    def test_a_clean_store_passes(self):
        self.keystore("etc/ssl/certs/java/cacerts", *self.public)
        done = self.check()
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_they_are_trusted_when_asked_for_and_not_afterwards(self):
        self.must("add", self.authorities / "extra", 1)
        self.assertIn(self.extra.read_text().split("\n")[1], self.bundle.read_text())
        self.refused("ca-certificates.crt still trusts a certificate of")
        self.must("remove")
        self.assertNotIn(self.extra.read_text().split("\n")[1], self.bundle.read_text())
        self.assertEqual(self.bundle.read_text().count("BEGIN CERTIFICATE"), 3)
        self.assertEqual(self.check().returncode, 0)

    def test_they_are_not_trusted_without_the_build_argument(self):
        self.must("add", self.authorities / "extra", 0)
        self.assertEqual(self.bundle.read_text().count("BEGIN CERTIFICATE"), 3)

    def test_the_argument_without_a_certificate_is_an_error(self):
        (self.root / "nothing").mkdir()
        self.assertIn("has no *.crt", self.run_it("add", self.root / "nothing", 1).stderr)

    def test_a_keystore_made_meanwhile_is_rebuilt_without_them(self):
        self.must("add", self.authorities / "extra", 1)
        self.keystore("etc/ssl/certs/java/cacerts", *self.public, self.extra)
        self.must("remove")
        self.assertEqual(self.check().returncode, 0, self.check().stderr)

    def test_one_that_is_left_is_found_in_each_place(self):
        places = {
            "the bundle": lambda: self.bundle.write_text(self.bundle.read_text() + self.extra.read_text()),
            "the bundle with lines of another width": lambda: self.bundle.write_text(
                self.bundle.read_text() + rewrapped(self.extra.read_text())),
            "a file beside the bundle": lambda: shutil.copy(self.extra, self.root / "etc/ssl/certs/left.pem"),
            "the local directory": lambda: shutil.copy(
                self.extra, self.root / "usr/local/share/ca-certificates/left.crt"),
            "Debian's keystore": lambda: self.keystore("etc/ssl/certs/java/cacerts", *self.public, self.extra),
            "a JDK's own keystore": lambda: self.keystore("usr/lib/jvm/jdk/lib/security/cacerts", self.extra),
            "a keystore in /opt": lambda: self.keystore("opt/jdk/lib/security/cacerts", self.extra),
        }
        for name, leave in places.items():
            with self.subTest(place=name):
                self.setUp()
                leave()
                self.refused("still trusts a certificate of")

    def test_an_inspection_product_is_found_in_each_place(self):
        places = {
            "the bundle": lambda: self.bundle.write_text(self.bundle.read_text() + self.product.read_text()),
            "a file beside the bundle": lambda: shutil.copy(self.product, self.root / "etc/ssl/certs/left.pem"),
            "the local directory": lambda: shutil.copy(
                self.product, self.root / "usr/local/share/ca-certificates/left.crt"),
            "a keystore": lambda: self.keystore("usr/lib/jvm/jdk/lib/security/cacerts", *self.public, self.product),
        }
        for name, leave in places.items():
            with self.subTest(place=name):
                self.setUp()
                leave()
                self.refused("trusts an inspection CA", "Zscaler")

    def test_what_cannot_be_looked_into_fails(self):
        self.keystore("etc/ssl/certs/java/cacerts", *self.public)
        tools = self.root / "tools"
        tools.mkdir()
        for name in ("dirname", "awk", "openssl", "sed", "find", "mktemp", "rm", "grep", "head", "sort", "tr"):
            (tools / name).symlink_to(shutil.which(name, path="/usr/bin:/bin"))
        done = self.run_it("check", self.authorities / "extra", path=str(tools))
        self.assertEqual(done.returncode, 1)
        self.assertIn("it cannot be looked into", done.stderr)
        self.bundle.unlink()
        self.assertIn("nothing could be checked", self.check().stderr)

    @unittest.skipUnless(os.path.exists("/etc/ssl/certs/ca-certificates.crt"), "no store on this host")
    def test_no_public_authority_is_taken_for_a_product(self):
        public = pathlib.Path("/usr/share/ca-certificates/mozilla")
        bundle = "".join(path.read_text() for path in sorted(public.glob("*.crt")))
        self.assertGreater(bundle.count("BEGIN CERTIFICATE"), 50)
        self.bundle.write_text(bundle)
        done = self.check()
        self.assertEqual((done.returncode, done.stderr), (0, ""))


def rewrapped(pem):
    begin, *body, end = pem.strip().split("\n")
    text = "".join(body)
    return "\n".join([begin, *(text[i:i + 48] for i in range(0, len(text), 48)), end]) + "\n"


if __name__ == "__main__":
    unittest.main()
