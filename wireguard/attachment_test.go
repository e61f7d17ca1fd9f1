package wireguard

import "testing"

const (
	uid         = "5f6e7d8c-0000-4000-8000-000000000001"
	alicesBlock = `{"publicKey":"hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="}`
)

// The codes were computed apart from this repository's code, with another
// implementation of HKDF and HMAC.
func TestAttachmentKnownAnswers(t *testing.T) {
	cases := []struct {
		seed            string
		namespace, name string
		client          string
		want            string
	}{
		{counting, "apps", "media", "{}", "2AOkaioDQgT0x8qlVHlmrD1ww4Llqpj0qRXLjEKS85g="},
		{counting, "apps", "media", alicesBlock, "s0Z+1bAPzFPFd49cy1eXs311M0iEtnkm0ISqR4mhzKE="},
		{counting, "app", "smedia", "{}", "0JPa9lmR7IYwaIlkYbWOYApbc71Ch7IXMrKwbWZB7Yk="},
		{ones, "apps", "media", "{}", "hOTUU14KnQu3WENOYWIiBhu177YUy89Y6nOVeL2HXCs="},
		{ones, "apps", "media", alicesBlock, "sZOSfqXNEQQ47RbL9n0b7x7J7hYEt3PIohfItPxqoEs="},
		{ones, "app", "smedia", "{}", "We6A36sSy1goLcFW9HTr0lh/KmGzfCxVUYIoW92e2Ao="},
	}
	for _, tc := range cases {
		key := seed(t, tc.seed).AttachmentKey()
		a := Attachment{Gateway: "vpn/home", Namespace: tc.namespace, Name: tc.name, UID: uid, Client: []byte(tc.client)}
		if got := a.MAC(key); got != tc.want {
			t.Errorf("MAC of %s/%s with %s: want %s, got %s", tc.namespace, tc.name, tc.client, tc.want, got)
		}
		if !a.Authentic(key, tc.want) {
			t.Errorf("Authentic(%s): want true, got false", tc.want)
		}
	}
}

func TestAttachmentForged(t *testing.T) {
	key := seed(t, counting).AttachmentKey()
	valid := Attachment{Gateway: "vpn/home", Namespace: "apps", Name: "media", UID: uid, Client: []byte(`{}`)}
	mac := valid.MAC(key)
	cases := map[string]struct {
		reason string
		change func(*Attachment)
		mac    string
	}{
		"OtherGateway":   {reason: "what one gateway takes, another need not", change: func(a *Attachment) { a.Gateway = "vpn/work" }},
		"OtherNamespace": {reason: "a copy in another namespace is nobody's", change: func(a *Attachment) { a.Namespace = "web" }},
		"OtherName":      {reason: "a copy under another name is nobody's", change: func(a *Attachment) { a.Name = "video" }},
		"OtherUID":       {reason: "a peer that is created again has another UID", change: func(a *Attachment) { a.UID = "2" }},
		"OtherSettings":  {reason: "settings are authenticated byte for byte", change: func(a *Attachment) { a.Client = []byte(`{"disabled":false}`) }},
		"Shifted":        {reason: "a byte that moves to the next field changes the code", change: func(a *Attachment) { a.Namespace, a.Name = "app", "smedia" }},
		"NoCode":         {reason: "no code is not the code of anything", mac: "-"},
		"CodeWithSpaces": {reason: "a code has one spelling", mac: mac + "\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, code := valid, mac
			if tc.change != nil {
				tc.change(&a)
			}
			if tc.mac != "" {
				code = tc.mac
			}
			if a.Authentic(key, code) {
				t.Errorf("%s: it was taken", tc.reason)
			}
		})
	}
	if valid.Authentic(seed(t, ones).AttachmentKey(), mac) {
		t.Error("the code of one seed was taken with another")
	}
}
