//! Names, leases, instants and tokens: what they accept and what they refuse.

use std::time::Duration;

use monolock_core::{Lease, LeaseError, LockName, LockNameError, LockNameRef, MAX_NAME_BYTES, Timestamp, Token};

#[test]
fn b30_a_lease_is_exact_or_refused() {
    let lease = |duration| Lease::try_from(duration).map(Lease::as_millis);
    let micros = Duration::from_micros;
    assert_eq!(lease(Duration::ZERO), Err(LeaseError::Zero));
    assert_eq!(lease(Duration::from_nanos(1)), Err(LeaseError::NotWholeMilliseconds));
    assert_eq!(lease(micros(400)), Err(LeaseError::NotWholeMilliseconds));
    assert_eq!(lease(micros(1_500)), Err(LeaseError::NotWholeMilliseconds));
    assert_eq!(lease(Duration::from_millis(1)), Ok(1));
    assert_eq!(lease(Duration::from_millis((1 << 32) - 1)), Ok(u32::MAX));
    assert_eq!(lease(Duration::from_millis(1 << 32)), Err(LeaseError::TooLong));
    assert_eq!(lease(Duration::from_secs(u64::MAX)), Err(LeaseError::TooLong));
    assert_eq!(lease(Duration::MAX), Err(LeaseError::NotWholeMilliseconds));
    assert_eq!(Lease::from_millis(0), None);
}

#[test]
fn b29_short_leases_are_as_good_as_any() {
    for lease_ms in [1, 2, 50, 100, 399, 400, 401] {
        let lease = Lease::from_millis(lease_ms).unwrap();
        assert_eq!(Lease::try_from(lease.as_duration()), Ok(lease));
        assert_eq!(Duration::from(lease), Duration::from_millis(lease_ms.into()));
    }
}

#[test]
fn a_lease_error_says_what_is_wrong() {
    assert_eq!(LeaseError::Zero.to_string(), "lease must be positive");
    assert_eq!(LeaseError::NotWholeMilliseconds.to_string(), "lease must be a whole number of milliseconds");
    assert_eq!(LeaseError::TooLong.to_string(), "lease is longer than 4294967295 ms (49.7 days)");
    assert_eq!(Lease::MAX.as_millis(), 4_294_967_295);
    assert_eq!(Lease::from_millis(1500).unwrap().to_string(), "1.5s");
}

#[test]
fn a_name_is_1_to_255_bytes() {
    assert_eq!(LockNameRef::new(""), Err(LockNameError::Empty));
    assert_eq!(LockName::new(&"x".repeat(255)).unwrap().as_str().len(), MAX_NAME_BYTES);
    assert_eq!(LockName::new(&"x".repeat(256)), Err(LockNameError::TooLong { bytes: 256 }));
    // The limit counts bytes: these are 128 characters of two bytes.
    assert_eq!("é".repeat(128).parse::<LockName>(), Err(LockNameError::TooLong { bytes: 256 }));
    assert!("é".repeat(127).parse::<LockName>().is_ok());
}

#[test]
fn a_name_is_taken_raw() {
    for name in ["\0", "\n", " jobs ", "*", "/", "Jobs", "e\u{301}", "\u{202e}rtl", "\u{feff}"] {
        assert_eq!(LockName::new(name).unwrap().as_str(), name);
        assert_eq!(LockNameRef::from_bytes(name.as_bytes()).unwrap().as_str(), name);
    }
    assert_ne!(LockName::new("jobs"), LockName::new("Jobs"));
    assert_ne!(LockName::new("\u{e9}"), LockName::new("e\u{301}"));
}

#[test]
fn a_name_of_bytes_is_measured_before_it_is_read() {
    assert_eq!(LockNameRef::from_bytes(b""), Err(LockNameError::Empty));
    assert_eq!(LockNameRef::from_bytes(b"ab\xff"), Err(LockNameError::NotUtf8 { valid_up_to: 2 }));
    assert_eq!(LockNameRef::from_bytes(&[0xff; 256]), Err(LockNameError::TooLong { bytes: 256 }));
    assert_eq!(LockNameRef::from_bytes(&[b'x'; 256]), Err(LockNameError::TooLong { bytes: 256 }));
}

#[test]
fn a_name_in_debug_is_harmless_on_a_terminal() {
    assert_eq!(format!("{:?}", LockName::new("a\x1b[31m\n\0").unwrap()), r#""a\u{1b}[31m\n\0""#);
    assert_eq!(LockName::new("a b").unwrap().to_string(), "a b");
}

#[test]
fn instants_saturate() {
    let second = Duration::from_secs(1);
    assert_eq!(Timestamp::MAX.saturating_add(second), Timestamp::MAX);
    assert_eq!(Timestamp::ORIGIN.saturating_sub(second), Timestamp::ORIGIN);
    assert_eq!(Timestamp::ORIGIN.saturating_add(Duration::MAX), Timestamp::MAX);
    assert_eq!(Timestamp::from_millis(u64::MAX), Timestamp::MAX);
    assert_eq!(Timestamp::from_millis(1).since(Timestamp::from_millis(3)), Duration::ZERO);
    assert_eq!(format!("{:?}", Timestamp::from_millis(1500)), "1.5s");
}

#[test]
fn a_token_is_never_zero() {
    assert_eq!(Token::new(0), None);
    let token = Token::new(7).unwrap();
    assert_eq!((token.to_string(), format!("{token:?}"), token.get()), ("7".into(), "#7".into(), 7));
}
