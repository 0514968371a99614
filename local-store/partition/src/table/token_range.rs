//! A range of tokens of a table's ring.

use model::Token;

/// Tokens from `first` (inclusive) to `last` (inclusive).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenRange {
    /// The first token, inclusive.
    pub first: Token,
    /// The last token, inclusive.
    pub last: Token,
}

impl TokenRange {
    /// Returns the first token of the upper half; `None` if there is only one token.
    #[must_use]
    pub fn middle(self) -> Option<Token> {
        let below = self.last.0.checked_sub(self.first.0)?.checked_sub(1)? / 2;
        Some(Token(self.first.0 + below + 1))
    }

    /// The range of all tokens.
    pub const ALL: Self = Self { first: Token(0), last: Token(u64::MAX) };

    /// Returns segment `segment` of `total` of a parallel scan. The segments of one total cover the
    /// ring without gaps or overlaps. `segment` must be below `total`.
    #[must_use]
    pub fn segment(segment: u32, total: u32) -> Self {
        let bound = |position: u64| (u128::from(position) << 64) / u128::from(total.max(1));
        let token = |bound: u128| Token(u64::try_from(bound).unwrap_or(u64::MAX));
        Self {
            first: token(bound(segment.into())),
            last: token(bound(u64::from(segment) + 1).saturating_sub(1)),
        }
    }
}
