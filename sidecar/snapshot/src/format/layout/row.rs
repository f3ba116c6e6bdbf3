//! The rows of tables: their fields, and the macro that declares them.

use crate::values::rows::Span;

/// Reads the fields of a row in order. Row sizes are constants, so a field beyond the end is a fault of this module
/// only; it reads as zero.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl Fields<'_> {
    #[inline(always)]
    pub(super) fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk::<N>() {
            Some((field, rest)) => {
                self.0 = rest;
                *field
            }
            None => [0; N],
        }
    }
    #[inline(always)]
    pub(super) fn u8(&mut self) -> u8 {
        let [byte] = self.take();
        byte
    }
    #[inline(always)]
    pub(super) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }
    #[inline(always)]
    pub(super) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }
    #[inline(always)]
    pub(super) fn i64(&mut self) -> i64 {
        i64::from_le_bytes(self.take())
    }
    #[inline(always)]
    pub(super) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
    #[inline(always)]
    pub(super) fn f64(&mut self) -> f64 {
        f64::from_le_bytes(self.take())
    }
    #[inline(always)]
    pub(super) fn span(&mut self) -> Span {
        Span { start: self.u32(), length: self.u32() }
    }
}

/// Writes the fields of a row in order.
pub(super) struct RowWriter<const N: usize> {
    pub(super) bytes: [u8; N],
    at: usize,
}

impl<const N: usize> RowWriter<N> {
    pub(super) fn new() -> Self {
        Self { bytes: [0; N], at: 0 }
    }
    pub(super) fn put(mut self, field: &[u8]) -> Self {
        let end = self.at + field.len();
        if let Some(place) = self.bytes.get_mut(self.at..end) {
            place.copy_from_slice(field);
        }
        self.at = end;
        self
    }
    pub(super) fn span(self, span: Span) -> Self {
        self.put(&span.start.to_le_bytes()).put(&span.length.to_le_bytes())
    }
}

/// `row!` declares a row: its fields in stored order, and its size, which is checked at compile time. A `span` is a byte
/// range of the blob, a `range` a range of rows or bytes of another section.
macro_rules! row {
    ($(#[$doc:meta])* $name:ident, $size:literal, { $($(#[$field_doc:meta])* $field:ident: $kind:tt),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Default)]
        pub(crate) struct $name { $($(#[$field_doc])* pub(crate) $field: row!(@type $kind)),+ }
        impl Row<$size> for $name {
            fn encode(&self) -> [u8; $size] {
                const { assert!($(row!(@size $kind) +)+ 0 == $size, "the fields do not fill the row") };
                let writer = RowWriter::<$size>::new();
                $(let writer = row!(@put writer, $kind, self.$field);)+
                writer.bytes
            }
            #[inline(always)]
            fn decode(bytes: &[u8; $size]) -> Self {
                let mut fields = Fields(bytes);
                Self { $($field: row!(@take fields, $kind)),+ }
            }
        }
        #[cfg(test)]
        impl $name {
            /// Name, type and number of bytes of each field, in stored order.
            #[allow(dead_code, reason = "the example does not have every kind of row")]
            pub(crate) const FIELDS: crate::format::example::Fields =
                &[$((stringify!($field), stringify!($kind), row!(@size $kind))),+];
        }
    };
    (@type u8) => { u8 }; (@type u16) => { u16 }; (@type u32) => { u32 }; (@type u64) => { u64 }; (@type i64) => { i64 }; (@type f64) => { f64 };
    (@type span) => { Span }; (@type range) => { Span }; (@type hash96) => { [u8; 12] }; (@type hash128) => { [u8; 16] };
    (@size u8) => { 1 }; (@size u16) => { 2 }; (@size u32) => { 4 }; (@size u64) => { 8 }; (@size i64) => { 8 }; (@size f64) => { 8 };
    (@size span) => { 8 }; (@size range) => { 8 }; (@size hash96) => { 12 }; (@size hash128) => { 16 };
    (@put $writer:ident, span, $value:expr) => { $writer.span($value) };
    (@put $writer:ident, range, $value:expr) => { $writer.span($value) };
    (@put $writer:ident, hash96, $value:expr) => { $writer.put(&$value) };
    (@put $writer:ident, hash128, $value:expr) => { $writer.put(&$value) };
    (@put $writer:ident, $kind:tt, $value:expr) => { $writer.put(&$value.to_le_bytes()) };
    (@take $fields:ident, range) => { $fields.span() };
    (@take $fields:ident, hash96) => { $fields.take() }; (@take $fields:ident, hash128) => { $fields.take() };
    (@take $fields:ident, $kind:tt) => { $fields.$kind() };
}
