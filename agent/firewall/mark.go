package firewall

import (
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
)

// meta mark.
func mark(m uint32) []expr.Any {
	return meta(expr.MetaKeyMARK, binaryutil.NativeEndian.PutUint32(m))
}

// meta mark set.
func setMark(m uint32) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: register, Data: binaryutil.NativeEndian.PutUint32(m)},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: register},
	}
}

// ct mark.
func ctMark(m uint32) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeyMARK, Register: register},
		compare(expr.CmpOpEq, binaryutil.NativeEndian.PutUint32(m)),
	}
}

// ct mark set.
func setCtMark(m uint32) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: register, Data: binaryutil.NativeEndian.PutUint32(m)},
		&expr.Ct{Key: expr.CtKeyMARK, SourceRegister: true, Register: register},
	}
}

// ctOriginal matches packets in the direction in which their connection was
// opened.
func ctOriginal() []expr.Any {
	const ipCtDirOriginal = 0 // IP_CT_DIR_ORIGINAL
	return []expr.Any{&expr.Ct{Key: expr.CtKeyDIRECTION, Register: register}, compare(expr.CmpOpEq, []byte{ipCtDirOriginal})}
}
