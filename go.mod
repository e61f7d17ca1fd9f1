module github.com/wireguardgateway/function-wireguard-gateway

go 1.26.0

require golang.zx2c4.com/wireguard/wgctrl v0.0.0-20241231184526-a9ab2273dd10

require golang.org/x/crypto v0.31.0 // indirect
