//! Tables of rows of fixed size, decoded on access.

/// Offset and length of a byte range, or of a range of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) length: u32,
}

impl Span {
    pub(crate) fn of(self, blob: &[u8]) -> &[u8] {
        let start = self.start as usize;
        blob.get(start..start.saturating_add(self.length as usize)).unwrap_or_default()
    }

    /// Returns the span as one word of a row.
    pub(crate) fn to_word(self) -> u64 {
        u64::from(self.length) << 32 | u64::from(self.start)
    }

    #[inline(always)]
    pub(crate) fn from_word(word: u64) -> Self {
        Self { start: word as u32, length: (word >> 32) as u32 }
    }

    pub(crate) fn within(self, blob: &[u8]) -> bool {
        self.start as usize + self.length as usize <= blob.len()
    }
}

/// A row of fixed size.
pub(crate) trait Row<const N: usize>: Sized + Copy {
    /// Size in bytes.
    const SIZE: usize = N;
    fn encode(&self) -> [u8; N];
    fn decode(bytes: &[u8; N]) -> Self;
}

/// Counts the visit of a row, in tests only.
#[inline(always)]
fn visited() {
    #[cfg(test)]
    crate::budget::work::add(1);
}

/// A table of rows of fixed size, decoded on access.
#[derive(Clone, Copy)]
pub(crate) struct Table<'a, R, const N: usize> {
    rows: &'a [[u8; N]],
    row: std::marker::PhantomData<R>,
}

impl<'a, R: Row<N>, const N: usize> Table<'a, R, N> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rows: bytes.as_chunks().0, row: std::marker::PhantomData }
    }
    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> Option<R> {
        visited();
        self.rows.get(index as usize).map(R::decode)
    }
    /// Returns a row as stored.
    #[inline(always)]
    pub(crate) fn stored(&self, index: u32) -> Option<&'a [u8; N]> {
        visited();
        self.rows.get(index as usize)
    }
    /// Iterates over all rows as stored.
    #[inline(always)]
    pub(crate) fn each_stored(self) -> impl Iterator<Item = &'a [u8; N]> {
        let rows = self.rows.iter();
        #[cfg(test)]
        let rows = rows.inspect(|_| visited());
        rows
    }
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }
    pub(crate) fn range(&self, start: u32, length: u32) -> Self {
        let start = start as usize;
        Self { rows: self.rows.get(start..start.saturating_add(length as usize)).unwrap_or_default(), ..*self }
    }
    /// Returns the number of rows for which `holds` is true. All of these rows must precede the others.
    #[inline(always)]
    pub(crate) fn partition_point(&self, mut holds: impl FnMut(R) -> bool) -> u32 {
        let mut holds = |row: &[u8; N]| {
            visited();
            holds(R::decode(row))
        };
        self.rows.partition_point(&mut holds) as u32
    }
    pub(crate) fn has(&self, start: u32, length: u32) -> bool {
        start as usize + length as usize <= self.rows.len()
    }
    pub(crate) fn iter(self) -> impl Iterator<Item = R> + 'a
    where
        R: 'a,
    {
        self.rows.iter().map(|row| {
            visited();
            R::decode(row)
        })
    }
}
