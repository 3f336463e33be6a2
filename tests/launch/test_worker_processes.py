from dragoman.launch.worker_processes import follow_lines


def test_only_complete_lines_that_were_added_are_returned(tmp_path):
    log = tmp_path / "log"
    log.write_text("before\n")
    read = follow_lines(log, latest_only=False)
    assert read() == []
    with log.open("a") as file:
        file.write("one\ntwo\nhal")
    assert read() == ["one", "two"]
    with log.open("a") as file:
        file.write("f\n")
    assert read() == ["half"]


def test_the_latest_line_alone_can_be_asked_for(tmp_path):
    log = tmp_path / "log"
    read = follow_lines(log, latest_only=True)
    assert read() == []
    log.write_text("one\ntwo\n")
    assert read() == ["two"]
