//! Certificates for a server and a client.

use std::fs;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// An authority, a server of its and a client, as files.
pub(crate) fn make_certificates(directory: &Path) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    fs::write(directory.join("ca.pem"), authority.pem()).unwrap();
    for (name, hosts) in [("server", vec!["locks.example".to_owned()]), ("client", Vec::new())] {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(hosts).unwrap().signed_by(&key, &authority).unwrap();
        fs::write(directory.join(format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(directory.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}
