//! The example runs and says what it promises.

#[path = "../../examples/embedded_server.rs"]
#[expect(dead_code, reason = "its main function is another program's")]
mod embedded_server;

#[tokio::test]
async fn the_example_hands_a_lock_over() {
    let mut said = Vec::new();
    embedded_server::hand_over(&mut said).await.unwrap();
    let said = String::from_utf8(said).unwrap();
    let lines: Vec<_> = said.lines().map(|line| line.split_once(" #").map_or(line, |(line, _token)| line)).collect();
    assert_eq!(
        lines,
        [
            "alice holds the lock under token",
            "bob waits",
            "alice leaves",
            "bob holds the lock under token",
            "the server stops and tells bob so: 01",
        ]
    );
}
