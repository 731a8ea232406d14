//! The rules of a session, told as stories.

use std::time::Duration;

use monolock_client::session::{Event, HEARTBEAT_CEILING, HEARTBEAT_FLOOR, Session, Standing};
use monolock_client::{LossReason, Timestamp};
use proptest::prelude::*;

use crate::script::{check, check_session, frame, render, session, session_with};

const TEN_SECONDS: Duration = Duration::from_secs(10);

#[test]
fn a_free_lock_is_granted_and_kept() {
    check(
        TEN_SECONDS,
        "
            0s     start        -> sends ACQUIRE
            0s     acquired=41  -> granted 41
            0s     deadline     -> 2.5s
            2.5s   tick         -> sends HEARTBEAT
            2.5s   deadline     -> 8s
            2.5s   acquired=41  ->
            2.5s   deadline     -> 5s
            5s     tick         -> sends HEARTBEAT
        ",
    );
}

#[test]
fn a_taken_lock_is_waited_for() {
    check(
        TEN_SECONDS,
        "
            0s     start        -> sends ACQUIRE
            0s     waiting      -> queued
            2.5s   tick         -> sends HEARTBEAT
            2.5s   waiting      ->
            4s     acquired=42  -> granted 42
            4s     deadline     -> 5s
            5s     tick         -> sends HEARTBEAT
            5s     acquired=42  ->
        ",
    );
}

#[test]
fn b01_silence_is_a_loss_after_four_fifths_of_the_lease() {
    check(
        TEN_SECONDS,
        "
            0s        start        -> sends ACQUIRE
            0s        acquired=41  -> granted 41
            2.5s      tick         -> sends HEARTBEAT
            7.999999s tick         ->
            8s        tick         -> lost: timeout
            8s        deadline     -> none
            9s        tick         ->
        ",
    );
}

#[test]
fn b02_the_give_up_instant_counts_from_the_sending() {
    check(
        TEN_SECONDS,
        "
            0s    start        -> sends ACQUIRE
            0s    acquired=41  -> granted 41
            2.5s  tick         -> sends HEARTBEAT
            5.5s  acquired=41  -> sends HEARTBEAT
            5.5s  deadline     -> 10.5s
            10.5s tick         -> lost: timeout
        ",
    );
}

#[test]
fn b02_the_handshake_is_covered_too() {
    check(
        TEN_SECONDS,
        "
            0s start    -> sends ACQUIRE
            0s deadline -> 8s
            8s tick     -> refused: timeout
        ",
    );
    check(
        TEN_SECONDS,
        "
            0s start       -> sends ACQUIRE
            7s acquired=41 -> granted 41; sends HEARTBEAT
            7s deadline    -> 8s
            8s tick        -> lost: timeout
        ",
    );
}

#[test]
fn b02_the_window_begins_at_the_sending_and_not_at_the_connection() {
    let mut session = session(TEN_SECONDS);
    session.transmit(Timestamp::from_millis(3000), &mut Vec::new());
    assert_eq!(session.gives_up_at(), Some(Timestamp::from_millis(11_000)));
}

#[test]
fn b02b_a_push_confirms_nothing() {
    check(
        TEN_SECONDS,
        "
            0s     start        -> sends ACQUIRE
            0s     waiting      -> queued
            2.5s   tick         -> sends HEARTBEAT
            2.6s   acquired=41  -> granted 41
            2.6s   deadline     -> 8s
            8s     tick         -> lost: timeout
        ",
    );
    check(
        TEN_SECONDS,
        "
            0s     start                    -> sends ACQUIRE
            0s     waiting                  -> queued
            2.5s   tick                     -> sends HEARTBEAT
            2.5s   acquired=41 acquired=41  -> granted 41
            2.5s   deadline                 -> 5s
        ",
    );
}

#[test]
fn b03_the_clock_comes_before_the_bytes() {
    check(
        TEN_SECONDS,
        "
            0s    start        -> sends ACQUIRE
            0s    acquired=41  -> granted 41
            2.5s  tick         -> sends HEARTBEAT
            30s   acquired=41  -> lost: timeout
            30s   acquired=41  ->
        ",
    );
    check(
        TEN_SECONDS,
        "
            0s    start        -> sends ACQUIRE
            8s    acquired=41  -> refused: timeout
        ",
    );
    check(
        TEN_SECONDS,
        "
            0s    start        -> sends ACQUIRE
            0s    acquired=41  -> granted 41
            9s    closed       -> lost: timeout
        ",
    );
}

#[test]
fn b03_nothing_is_sent_after_the_give_up_instant() {
    let mut session = session(TEN_SECONDS);
    let mut sent = Vec::new();
    session.transmit(Timestamp::from_millis(8000), &mut sent);
    assert!(sent.is_empty(), "{sent:?}");
}

#[test]
fn b07_hours_of_prompt_heartbeats_are_never_a_loss() {
    let mut session = session(Duration::from_secs(1));
    let mut events = Vec::new();
    session.transmit(Timestamp::ORIGIN, &mut Vec::new());
    session.receive(Timestamp::from_millis(1), &frame("acquired=7"), &mut events);
    let mut now = Timestamp::ORIGIN;
    while now < Timestamp::from_millis(3 * 60 * 60 * 1000) {
        now = session.next_deadline().expect("the session goes on");
        session.tick(now, &mut events);
        let mut sent = Vec::new();
        session.transmit(now, &mut sent);
        assert_eq!(sent, [0x02]);
        session.receive(now.saturating_add(Duration::from_millis(1)), &frame("acquired=7"), &mut events);
    }
    assert_eq!(events.len(), 1, "{events:?}");
}

#[test]
fn b15_a_hold_longer_than_max_hold_is_lost() {
    check_session(
        session_with(TEN_SECONDS, Some(Duration::from_secs(6))),
        "
            0s     start        -> sends ACQUIRE
            0s     waiting      -> queued
            1s     acquired=41  -> granted 41
            2.5s   tick         -> sends HEARTBEAT
            2.5s   acquired=41  ->
            5s     tick         -> sends HEARTBEAT
            5s     acquired=41  ->
            5s     deadline     -> 7s
            7s     tick         -> lost: max hold
        ",
    );
    check_session(
        session_with(TEN_SECONDS, Some(Duration::from_mins(1))),
        "
            0s     start        -> sends ACQUIRE
            0s     acquired=41  -> granted 41
            90s    tick         -> lost: timeout
        ",
    );
}

#[test]
fn b19_silence_in_the_queue_is_a_loss_too() {
    check(
        TEN_SECONDS,
        "
            0s     start        -> sends ACQUIRE
            0s     waiting      -> queued
            2.5s   tick         -> sends HEARTBEAT
            8s     tick         -> lost: timeout
        ",
    );
}

#[test]
fn b29_short_leases_beat_between_their_floor_and_their_base() {
    for lease_ms in [1, 2, 50, 100, 399, 400, 401, 10_000, u64::from(u32::MAX)] {
        for round_trip_us in [0, 1, 100, 10_000] {
            beats_within_bounds(Duration::from_millis(lease_ms), Duration::from_micros(round_trip_us));
        }
    }
}

/// Plays a few prompt beats and checks each interval.
fn beats_within_bounds(lease: Duration, round_trip: Duration) {
    let base = lease / 4;
    let (shortest, longest) = (HEARTBEAT_FLOOR.min(base).min(HEARTBEAT_CEILING), base.min(HEARTBEAT_CEILING));
    let mut session = session(lease);
    let mut events = Vec::new();
    let mut sent_at = Timestamp::ORIGIN;
    session.transmit(sent_at, &mut Vec::new());
    for _ in 0..20 {
        session.receive(sent_at.saturating_add(round_trip), &frame("acquired=7"), &mut events);
        let mut sent = Vec::new();
        session.transmit(sent_at.saturating_add(round_trip), &mut sent);
        if session.standing() == Standing::Over {
            assert!(round_trip >= lease * 4 / 5, "{lease:?} {round_trip:?}");
            return;
        }
        if !sent.is_empty() {
            assert!(round_trip >= shortest || round_trip * 2 >= base, "{lease:?} {round_trip:?}");
            sent_at = sent_at.saturating_add(round_trip);
            continue;
        }
        let due = session.next_deadline().unwrap();
        let interval = due.since(sent_at);
        assert!(shortest <= interval && interval <= longest, "{lease:?} {round_trip:?}: {interval:?}");
        session.tick(due, &mut events);
        session.transmit(due, &mut sent);
        assert_eq!(sent, [0x02]);
        sent_at = due;
    }
}

#[test]
fn b45_no_lease_makes_a_flow_idle_for_more_than_a_minute() {
    check(
        Duration::from_mins(30),
        "
            0s    start        -> sends ACQUIRE
            0s    acquired=41  -> granted 41
            0s    deadline     -> 60s
            60s   tick         -> sends HEARTBEAT
            60s   acquired=41  ->
            60s   deadline     -> 120s
        ",
    );
}

#[test]
fn the_round_trip_shortens_the_interval() {
    check(
        TEN_SECONDS,
        "
            0s      start        -> sends ACQUIRE
            500ms   acquired=41  -> granted 41
            500ms   deadline     -> 1.5s
            1.5s    tick         -> sends HEARTBEAT
            1.5s    acquired=41  ->
            1.5s    deadline     -> 3.2s
        ",
    );
    check(
        TEN_SECONDS,
        "
            0s      start        -> sends ACQUIRE
            1.24s   acquired=41  -> granted 41; sends HEARTBEAT
        ",
    );
}

#[test]
fn where_the_round_trip_eats_the_interval_the_next_beat_follows_the_answer() {
    check(
        TEN_SECONDS,
        "
            0s     start        -> sends ACQUIRE
            2s     acquired=41  -> granted 41; sends HEARTBEAT
            2s     deadline     -> 8s
            3s     tick         ->
            4s     acquired=41  -> sends HEARTBEAT
        ",
    );
}

#[test]
fn at_most_one_heartbeat_is_unanswered() {
    check(
        TEN_SECONDS,
        "
            0s     start        -> sends ACQUIRE
            0s     acquired=41  -> granted 41
            2.5s   tick         -> sends HEARTBEAT
            5s     tick         ->
            7.5s   tick         ->
        ",
    );
}

#[test]
fn an_early_tick_does_nothing() {
    check(
        TEN_SECONDS,
        "
            0s        start        -> sends ACQUIRE
            0s        acquired=41  -> granted 41
            2.499999s tick         ->
            2.5s      deadline     -> 2.5s
            2.5s      tick         -> sends HEARTBEAT
        ",
    );
}

#[test]
fn time_that_steps_back_stands_still() {
    check(
        TEN_SECONDS,
        "
            5s   start        -> sends ACQUIRE
            1s   acquired=41  -> granted 41
            1s   deadline     -> 7.5s
            7.5s tick         -> sends HEARTBEAT
            2s   acquired=41  ->
            2s   deadline     -> 10s
        ",
    );
    check_session(
        session_with(TEN_SECONDS, Some(Duration::from_secs(1))),
        "
            5s   start        -> sends ACQUIRE
            1s   acquired=41  -> granted 41
            1s   deadline     -> 6s
        ",
    );
}

#[test]
fn what_no_server_may_send_is_a_loss() {
    let granted = "
            0s start        -> sends ACQUIRE
            0s acquired=41  -> granted 41";
    for (frames, reason) in [
        ("waiting", "waiting after acquired"),
        ("acquired=42", "token changed"),
        ("acquired=41", "unsolicited"),
        ("acquired=0", "unknown frame"),
        ("bytes=7f", "unknown frame"),
        ("bytes=00 acquired=41", "unknown frame"),
    ] {
        check(TEN_SECONDS, &format!("{granted}\n 1s {frames} -> lost: {reason}\n 2s tick ->"));
    }
    let queued = "
            0s start    -> sends ACQUIRE
            0s waiting  -> queued";
    check(TEN_SECONDS, &format!("{queued}\n 1s waiting -> lost: unsolicited"));
    check(TEN_SECONDS, "0s start -> sends ACQUIRE\n 1s bytes=48 -> refused: unknown frame");
}

#[test]
fn a_reply_to_an_acquire_that_was_never_sent_is_a_violation() {
    let mut events = Vec::new();
    session(TEN_SECONDS).receive(Timestamp::ORIGIN, &frame("waiting"), &mut events);
    assert_eq!(events.iter().map(render).collect::<Vec<_>>(), ["refused: unsolicited"]);
}

#[test]
fn a_servers_error_ends_the_session_with_its_code() {
    check(TEN_SECONDS, "0s start -> sends ACQUIRE\n 1s error=18 -> refused: server 0x18 why");
    check(TEN_SECONDS, "0s start -> sends ACQUIRE\n 1s acquired=1 error=02 -> granted 1; lost: server 0x02 why");
    check(TEN_SECONDS, "0s start -> sends ACQUIRE\n 1s waiting error=01 waiting -> queued; lost: server 0x01 why");
}

#[test]
fn b38_every_cut_of_a_stream_tells_the_same() {
    let stream: Vec<u8> = ["acquired=41", "acquired=41", "error=01"].into_iter().flat_map(frame).collect();
    let whole = read_in_pieces(&[&stream]);
    assert_eq!(whole.len(), 3);
    for first in 0..=stream.len() {
        for second in first..=stream.len() {
            let pieces = [&stream[..first], &stream[first..second], &stream[second..]];
            assert_eq!(read_in_pieces(&pieces), whole, "cut at {first} and {second}");
        }
    }
    assert_eq!(read_in_pieces(&stream.chunks(1).collect::<Vec<_>>()), whole);
}

/// What a session tells that is queued, has a heartbeat under way, and then reads these pieces.
fn read_in_pieces(pieces: &[&[u8]]) -> Vec<Event> {
    let (mut session, mut events) = (session(TEN_SECONDS), Vec::new());
    session.transmit(Timestamp::ORIGIN, &mut Vec::new());
    session.receive(Timestamp::ORIGIN, &frame("waiting"), &mut events);
    let beat_at = Timestamp::from_millis(2500);
    session.tick(beat_at, &mut events);
    session.transmit(beat_at, &mut Vec::new());
    for piece in pieces {
        session.receive(beat_at, piece, &mut events);
    }
    events
}

proptest! {
    /// No input leaves a deadline in the past: a due tick moves it on or ends the session, so a driver cannot spin.
    #[test]
    fn a_due_tick_makes_progress(lease_ms in 1_u32..100_000, inputs in proptest::collection::vec(any_input(), 0..60)) {
        let mut session = session_with(Duration::from_millis(lease_ms.into()), Some(Duration::from_secs(70)));
        let mut events = Vec::new();
        let mut now = Timestamp::ORIGIN;
        for (pause_us, transmit, bytes) in inputs {
            now = now.saturating_add(Duration::from_micros(pause_us));
            if transmit {
                session.transmit(now, &mut Vec::new());
            }
            session.receive(now, &bytes, &mut events);
            if let Some(deadline) = session.next_deadline() {
                let due = now.max(deadline);
                session.tick(due, &mut events);
                prop_assert!(session.next_deadline().is_none_or(|next| next > due));
                now = due;
            }
        }
        prop_assert!(ends_once(&session, &events));
    }
}

fn any_input() -> impl Strategy<Value = (u64, bool, Vec<u8>)> {
    let frames = ["waiting", "acquired=1", "acquired=2", "error=01", "bytes=12", "bytes=7f"];
    let bytes = prop_oneof![
        3 => Just(Vec::new()),
        6 => proptest::sample::select(&["waiting", "acquired=1"][..]).prop_map(frame),
        1 => proptest::sample::select(frames.to_vec()).prop_map(frame),
    ];
    (prop_oneof![Just(0), 0_u64..30_000_000], proptest::bool::weighted(0.8), bytes)
}

fn ends_once(session: &Session, events: &[Event]) -> bool {
    let ends = events.iter().filter(|event| matches!(event, Event::Lost { .. } | Event::Refused { .. })).count();
    ends == usize::from(session.standing() == Standing::Over)
}

#[test]
fn reasons_are_escaped_for_terminals() {
    let reason = LossReason::Server { code: monolock_client::ErrorCode(0x02), reason: "a\u{1b}[31m\nb".to_owned() };
    assert_eq!(reason.to_string(), "the server said 0x02: a\\u{1b}[31m\\nb");
}
