package render

import (
	"strings"

	"github.com/crossplane/function-sdk-go/errors"
	"rsc.io/qr"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
)

// quietZone is the white border that scanners need, in modules.
const quietZone = 4

// addQRCode stores the configuration as a QR code, as an image and as text.
func addQRCode(data map[string][]byte, config string) error {
	if len(config) > plan.MaxQRCode {
		return nil
	}
	code, err := qr.Encode(config, qr.L)
	if err != nil {
		return errors.Wrap(err, "cannot encode QR code")
	}
	data[names.DataDirectQR] = code.PNG()
	data[names.DataDirectQRTxt] = []byte(qrText(code))
	return nil
}

// qrText draws the code for a terminal, two modules a character. What is dark
// in the code is left blank, so that it scans from the dark background that
// terminals have.
func qrText(code *qr.Code) string {
	light := func(x, y int) bool { return !code.Black(x, y) }
	b := &strings.Builder{}
	for y := -quietZone; y < code.Size+quietZone; y += 2 {
		for x := -quietZone; x < code.Size+quietZone; x++ {
			switch upper, lower := light(x, y), light(x, y+1); {
			case upper && lower:
				b.WriteRune('█')
			case upper:
				b.WriteRune('▀')
			case lower:
				b.WriteRune('▄')
			default:
				b.WriteRune(' ')
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}
