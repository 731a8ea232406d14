//! Certificates as operators make them: with the command `openssl`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::wall_clock::WallClock;

/// A certificate and its key, in PEM files.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// A CA, and what it has signed; gone with this value.
#[derive(Debug)]
pub(crate) struct Authority {
    directory: TempDir,
    pub(crate) own: Pair,
}

/// What is asked of a CA.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// As `openssl req -subj` has it.
    pub(crate) subject: &'a str,
    /// As openssl's configuration has it; empty for none.
    pub(crate) alternative_names: &'a str,
    pub(crate) key: Key,
    pub(crate) validity: Validity,
}

/// What kind of key, in which format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    RsaPkcs8,
    RsaPkcs1,
    P256Pkcs8,
    P256Sec1,
    P384Sec1,
    Ed25519Pkcs8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Validity {
    Now,
    Over,
}

impl Wanted<'_> {
    pub(crate) const SERVER: Self = Self {
        subject: "/CN=monolock",
        alternative_names: "DNS:localhost,IP:127.0.0.1",
        key: Key::P256Pkcs8,
        validity: Validity::Now,
    };
}

impl Key {
    pub(crate) const ALL: [Self; 6] =
        [Self::RsaPkcs8, Self::RsaPkcs1, Self::P256Pkcs8, Self::P256Sec1, Self::P384Sec1, Self::Ed25519Pkcs8];

    /// The command of `openssl` that makes one, and its flags.
    const fn generation(self) -> (&'static str, &'static str) {
        match self {
            Self::RsaPkcs8 => ("genpkey", "-algorithm RSA -pkeyopt rsa_keygen_bits:2048"),
            Self::RsaPkcs1 => ("genrsa", "-traditional 2048"),
            Self::P256Pkcs8 => ("genpkey", "-algorithm EC -pkeyopt ec_paramgen_curve:P-256"),
            Self::P256Sec1 => ("ecparam", "-genkey -name prime256v1"),
            Self::P384Sec1 => ("ecparam", "-genkey -name secp384r1"),
            Self::Ed25519Pkcs8 => ("genpkey", "-algorithm ED25519"),
        }
    }

    /// The first words of its PEM.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::RsaPkcs8 | Self::P256Pkcs8 | Self::Ed25519Pkcs8 => "BEGIN PRIVATE KEY",
            Self::RsaPkcs1 => "BEGIN RSA PRIVATE KEY",
            Self::P256Sec1 | Self::P384Sec1 => "BEGIN EC PRIVATE KEY",
        }
    }
}

impl Authority {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let own = Pair { certificate: directory.path().join("ca.pem"), key: directory.path().join("ca.key") };
        let mut command = Command::new("openssl");
        command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]);
        command.args(["-days", "2", "-subj", "/CN=An authority", "-keyout"]).arg(&own.key);
        run(command.arg("-out").arg(&own.certificate));
        Self { directory, own }
    }

    /// Makes a key and signs a certificate for it, in files of this name.
    pub(crate) fn issue(&self, name: &str, wanted: Wanted<'_>) -> Pair {
        let Wanted { subject, alternative_names, key, validity } = wanted;
        let file = |ending| self.directory.path().join(format!("{name}.{ending}"));
        let pair = Pair { certificate: file("pem"), key: file("key") };
        let (generate, flags) = key.generation();
        run(Command::new("openssl").arg(generate).arg("-out").arg(&pair.key).args(flags.split(' ')));

        let (request, extensions) = (file("csr"), file("ext"));
        let named = if alternative_names.is_empty() { "" } else { "subjectAltName=" };
        fs::write(&extensions, format!("basicConstraints=CA:FALSE\n{named}{alternative_names}\n")).unwrap();
        let mut command = Command::new("openssl");
        command.args(["req", "-new", "-utf8", "-subj", subject, "-key"]).arg(&pair.key).arg("-out").arg(&request);
        run(&mut command);
        let serial = format!("0x{:032x}", fastrand::u128(1 << 100..1 << 120));
        let mut command = Command::new("openssl");
        if validity == Validity::Over {
            let clock = WallClock::new(self.directory.path());
            clock.set(-10 * 24 * 3600);
            clock.apply(&mut command);
        }
        command
            .args(["x509", "-req", "-days", "2", "-set_serial", &serial, "-in"])
            .arg(&request)
            .arg("-CA")
            .arg(&self.own.certificate);
        command.arg("-CAkey").arg(&self.own.key).arg("-extfile").arg(&extensions);
        run(command.arg("-out").arg(&pair.certificate));
        pair
    }

    /// A server's pair.
    pub(crate) fn server(&self) -> Pair {
        self.issue("server", Wanted::SERVER)
    }

    /// A client's pair, by the URI that names it.
    pub(crate) fn client(&self, uri: &str) -> Pair {
        let name = uri.replace(['/', ':', '*'], "_");
        let alternative_names = format!("URI:{uri}");
        let wanted = Wanted { subject: "/CN=client", alternative_names: &alternative_names, ..Wanted::SERVER };
        self.issue(&name, wanted)
    }
}

/// The serial number of a certificate, as openssl writes it.
pub(crate) fn serial(certificate: &Path) -> String {
    run(Command::new("openssl").args(["x509", "-noout", "-serial", "-in"]).arg(certificate))
}

/// Runs a tool that has to succeed, and says what it said.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {stdout}{stderr}");
    stdout.into_owned()
}
