#!/bin/sh
# Makes the certificates of the TLS tests anew.
set -eu
cd "$(dirname "$0")"
key() { openssl ecparam -name prime256v1 -genkey -noout | openssl pkcs8 -topk8 -nocrypt -out "$1.key"; }
key ca
openssl req -x509 -new -key ca.key -days 36500 -subj '/CN=tests of monolock' -out ca.pem
sign() {
    key "$1"
    openssl req -new -key "$1.key" -subj "/CN=$1" -out "$1.csr"
    printf '%s\n' "$2" > "$1.ext"
    openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 36500 -extfile "$1.ext" -out "$1.pem"
    rm "$1.csr" "$1.ext"
}
sign server 'subjectAltName=DNS:localhost,IP:127.0.0.1'
sign client 'extendedKeyUsage=clientAuth'
# Nothing else will be signed.
rm -f ca.key ca.srl
