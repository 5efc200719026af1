#!/bin/sh
# Make key.pem and cert.pem for a server in virtual time. Both are always the same, so that the same run sends the same
# bytes: Ed25519's key is any 32 bytes (RFC 8410), and everybody knows these. Keep it out of any other use. The
# certificate, which the key has signed, is written here, since openssl would put today's date into it; it is valid from
# 1970 to 2126.
set -e
{
    printf '\060\056\002\001\000\060\005\006\003\053\145\160\004\042\004\040'
    printf 'a key that everybody knows, see!'
} | openssl pkey -inform DER -out key.pem
cat > cert.pem <<'END'
-----BEGIN CERTIFICATE-----
MIIBJTCB2KADAgECAgEBMAUGAytlcDARMQ8wDQYDVQQDDAZzZXJ2ZXIwIBcNNzAw
MTAxMDAwMDAwWhgPMjEyNjAxMDEwMDAwMDBaMBExDzANBgNVBAMMBnNlcnZlcjAq
MAUGAytlcAMhANTPnDrh7oNjfKgl21yrOj0H1socdejxvRtb24NNdvgIo1MwUTAd
BgNVHQ4EFgQUd4YnUc7Y8k5UMX86HxC25qCMXu0wHwYDVR0jBBgwFoAUd4YnUc7Y
8k5UMX86HxC25qCMXu0wDwYDVR0TAQH/BAUwAwEB/zAFBgMrZXADQQDVGraC6QDX
n4e17CUeQ8XoOnuwIV5wFafE8brvvv/ZsSovf+kyv2AGqpVk2pPu3y5K1R4vn77q
vV4sbsOX4LwL
-----END CERTIFICATE-----
END
