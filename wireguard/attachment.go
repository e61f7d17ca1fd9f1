package wireguard

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strconv"
)

// Data keys of the ConfigMap <peer>-wireguard.attachment.
const (
	// AttachmentClientKey is the data key of the client's settings.
	AttachmentClientKey = "client.json"
	// AttachmentUIDKey is the data key of the UID of the WireguardPeer.
	AttachmentUIDKey = "uid"
	// AttachmentMACKey is the data key of the code that authenticates the rest.
	AttachmentMACKey = "mac"
)

// Attachment is what a WireguardPeer tells its gateway across namespaces. Who
// may write ConfigMaps may not be who may create WireguardPeers, so the gateway
// believes it only with the code that Seed.AttachmentKey makes.
type Attachment struct {
	// Gateway is the gateway's namespace and name, joined by a slash.
	Gateway string
	// Namespace and Name are the WireguardPeer's as its user knows it, and UID
	// that of the composite resource which owns the attachment.
	Namespace, Name, UID string
	// Client is the document of the client's settings, byte for byte.
	Client []byte
}

// MAC returns the code that authenticates the attachment, in base64: HMAC-SHA256
// (RFC 2104) over the document version and every field. Each is preceded by its
// length, as 8 bytes in network order, so that no two attachments run together
// to the same bytes.
func (a Attachment) MAC(key []byte) string {
	h := hmac.New(sha256.New, key)
	for _, part := range [][]byte{
		[]byte(strconv.Itoa(DocumentVersion)), []byte(a.Gateway), []byte(a.Namespace), []byte(a.Name), []byte(a.UID), a.Client,
	} {
		// Writing to a hash never fails.
		_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		_, _ = h.Write(part)
	}
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

// Authentic tells whether the code is the attachment's. How long it takes does
// not tell how much of the code is right.
func (a Attachment) Authentic(key []byte, mac string) bool {
	return hmac.Equal([]byte(a.MAC(key)), []byte(mac))
}
