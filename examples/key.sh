#!/bin/sh
# Make key.pem and cert.pem for a server in virtual time. The key is always the same, so that the same run sends the same
# bytes: Ed25519's is any 32 bytes (RFC 8410), and everybody knows these. Keep it out of any other use.
set -e
{
    printf '\060\056\002\001\000\060\005\006\003\053\145\160\004\042\004\040'
    printf 'a key that everybody knows, see!'
} | openssl pkey -inform DER -out key.pem
openssl req -x509 -key key.pem -subj /CN=server -set_serial 1 -days 36500 -out cert.pem
