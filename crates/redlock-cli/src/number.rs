//! Integers within a range, for options of the command.

use std::ops::RangeInclusive;

/// Returns a parser for an integer from a range. Its errors show the range in words.
pub(crate) fn within<N>(range: RangeInclusive<u32>) -> impl Fn(&str) -> Result<N, String> + Clone
where
    N: TryFrom<u32>,
{
    move |text| {
        let expected = || format!("expected an integer from {} to {}", range.start(), range.end());
        let number = text.parse::<u32>().ok().filter(|number| range.contains(number));
        number.and_then(|number| N::try_from(number).ok()).ok_or_else(expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_outside_of_its_range_is_rejected_with_the_range() {
        let permits = within::<u32>(1..=64);
        assert_eq!((permits("1"), permits("64")), (Ok(1), Ok(64)));
        for text in ["0", "65", "-1", "x", "", "1.5", "99999999999"] {
            assert_eq!(permits(text), Err("expected an integer from 1 to 64".into()), "{text}");
        }
    }
}
