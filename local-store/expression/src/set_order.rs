//! The order in which DynamoDB lists collected names: the iteration order of Java's `HashSet`.
//! Source: DynamoDB's responses, and the documentation of `String.hashCode`.

/// The initial number of buckets of a set. The set grows when more than three quarters of them are
/// used.
const BUCKETS_MIN: usize = 16;

/// Returns the names without duplicates, in the iteration order of a `HashSet`.
#[must_use]
pub fn in_set_order<'n>(names: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
    let mut distinct: Vec<&str> = Vec::new();
    for name in names {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    let buckets = (distinct.len() * 4).div_ceil(3).next_power_of_two().max(BUCKETS_MIN);
    let hash = |name: &str| {
        let sum = |hash: u32, unit: u16| hash.wrapping_mul(31).wrapping_add(unit.into());
        name.encode_utf16().fold(0, sum)
    };
    let bucket = |name: &&str| {
        let hash = hash(name);
        (hash ^ (hash >> 16)) as usize & (buckets - 1)
    };
    distinct.sort_by_key(bucket);
    distinct
}

#[cfg(test)]
mod tests {
    use super::in_set_order;

    #[test]
    fn names_are_ordered_by_their_hash() {
        for (names, expected) in [
            ("zz aa mm", "zz aa mm"),
            ("b a b", "a b"),
            ("s m", "s m"),
            ("m s", "s m"),
            ("tags mood", "mood tags"),
            ("", ""),
        ] {
            assert_eq!(in_set_order(names.split_whitespace()).join(" "), expected, "{names}");
        }
        // Thirteen names need twice as many buckets as twelve.
        let letters: Vec<String> = ('a'..='m').map(String::from).collect();
        let (twelve, all) = (letters.get(..12).unwrap(), &letters);
        assert_eq!(in_set_order(twelve.iter().map(String::as_str)).join(""), "abcdefghijkl");
        assert_eq!(in_set_order(all.iter().map(String::as_str)).join(""), "abcdefghijklm");
        let wide = ["p", "a", "q"];
        assert_eq!(in_set_order(wide.into_iter()).join(""), "paq");
        let with_wide = letters.iter().map(String::as_str).chain(wide);
        assert_eq!(in_set_order(with_wide).join(""), "abcdefghijklmpq");
    }
}
