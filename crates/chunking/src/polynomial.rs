//! Polynomials over GF(2) in the bits of a word, as far as Rabin fingerprints need them.
//!
//! M. O. Rabin, "Fingerprinting by Random Polynomials", TR-15-81, Harvard, 1981. The degree is 53,
//! a prime, which makes the test for irreducibility short: a polynomial P of prime degree n without
//! the roots 0 and 1 is irreducible if and only if x^(2^n) = x modulo P, because x^(2^n) - x is the
//! product of all irreducible polynomials whose degree divides n.

/// Degree of every fingerprint polynomial. With eight bits more it still fits a word.
pub(crate) const DEGREE: u32 = 53;

/// `value * x` modulo `modulus`; `value` has a lower degree than `modulus`.
fn times_x(value: u64, modulus: u64) -> u64 {
    let shifted = value << 1;
    if shifted >> DEGREE == 0 { shifted } else { shifted ^ modulus }
}

/// `a * b` modulo `modulus`; `a` and `b` have lower degrees than `modulus`.
fn multiply(a: u64, b: u64, modulus: u64) -> u64 {
    let mut product = 0;
    for bit in (0..DEGREE).rev() {
        product = times_x(product, modulus);
        if b >> bit & 1 == 1 {
            product ^= a;
        }
    }
    product
}

/// `value * x^exponent` modulo `modulus`.
pub(crate) fn shift(value: u64, exponent: usize, modulus: u64) -> u64 {
    (0..exponent).fold(value, |value, _| times_x(value, modulus))
}

/// Whether `candidate`, of degree [`DEGREE`], is irreducible.
pub(crate) fn is_irreducible(candidate: u64) -> bool {
    let has_root_zero = candidate & 1 == 0;
    let has_root_one = candidate.count_ones().is_multiple_of(2);
    if candidate >> DEGREE != 1 || has_root_zero || has_root_one {
        return false;
    }
    const X: u64 = 2;
    (0..DEGREE).fold(X, |power, _| multiply(power, power, candidate)) == X
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plain product of small polynomials, without reduction.
    fn product(a: u64, b: u64) -> u64 {
        (0..64).filter(|bit| b >> bit & 1 == 1).fold(0, |sum, bit| sum ^ (a << bit))
    }

    /// Whether a polynomial of degree at most `degree` divides `value`: trial division.
    fn has_small_factor(value: u64, degree: u32) -> bool {
        (2_u64..1 << (degree + 1)).any(|divisor| {
            let divisor_degree = divisor.ilog2();
            let mut rest = value;
            while rest != 0 && rest.ilog2() >= divisor_degree {
                rest ^= divisor << (rest.ilog2() - divisor_degree);
            }
            rest == 0
        })
    }

    #[test]
    fn a_known_irreducible_polynomial_is_recognised() {
        // The polynomial of degree 53 which the restic documentation gives as an example.
        assert!(is_irreducible(0x003d_a335_8b4d_c173));
    }

    #[test]
    fn products_and_other_degrees_are_refused() {
        // Degrees 26 and 27, both without roots.
        let (a, b): (u64, u64) = (1 << 26 | 0b1000111, 1 << 27 | 0b100111);
        assert_eq!((a.count_ones() % 2, b.count_ones() % 2), (1, 1));
        let reducible = product(a, b);
        assert_eq!(reducible.ilog2(), DEGREE);
        assert!(!is_irreducible(reducible));
        assert!(!is_irreducible(0));
        assert!(!is_irreducible(0b10));
        assert!(!is_irreducible(u64::MAX));
    }

    #[test]
    fn what_is_called_irreducible_has_no_small_factor() {
        let mut found = 0;
        for low in (0..4000_u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) {
            let candidate = 1 << DEGREE | low;
            if is_irreducible(candidate) {
                found += 1;
                assert!(!has_small_factor(candidate, 8), "{candidate:x}");
            }
        }
        // One in 53 of all polynomials is irreducible.
        assert!((40..120).contains(&found), "{found}");
    }
}
