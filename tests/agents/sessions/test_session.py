"""One conversation in storage and in memory (sessions section 2)."""

from __future__ import annotations

import itertools

import pytest

from agents.sessions.messages import UIMessage
from agents.sessions.session import SESSION_STEPS, Session
from runtime.storage.duckdb import open_store
from runtime.storage.migrations import migrate


def message(message_id, text="", role="user"):
    return UIMessage(message_id, role, [{"type": "text", "text": text or message_id}])


@pytest.fixture
def store(tmp_path):
    store = open_store(tmp_path, inline=True)
    migrate(store, "session", SESSION_STEPS)
    yield store
    store.close(checkpoint=False)


@pytest.fixture
def now_ms():
    return itertools.count(1000).__next__


@pytest.fixture
def session(store, now_ms):
    return Session(store, now_ms)


def ids(messages):
    return [one.id for one in messages]


def test_the_history_is_in_the_order_of_insertion(session, store):
    # S4: not by time
    same_ms = Session(store, lambda: 7)
    for message_id in ("c", "a", "b"):
        same_ms.append_message(message(message_id))
    assert ids(Session(store, lambda: 7).get_history()) == ["c", "a", "b"]


def test_a_message_answers_the_latest_leaf_by_default(session):
    # S2
    session.append_message(message("a"))
    session.append_message(message("b"))
    assert session.get_parent_id("b") == "a"
    assert session.get_parent_id("a") is None


def test_appending_a_known_id_changes_nothing(session):
    # S1
    session.append_message(message("a", "first"))
    assert session.append_message(message("a", "second")) is False
    assert [one.text for one in session.get_history()] == ["first"]


def test_an_unknown_parent_makes_a_root(session):
    # S2
    session.append_message(message("a"))
    session.append_message(message("b"), "nobody")
    assert session.get_parent_id("b") is None
    assert ids(session.get_history()) == ["b"]


def test_a_reply_to_another_branch_makes_that_one_active(session):
    # S3
    session.append_message(message("u"))
    session.append_message(message("one"), "u")
    session.append_message(message("two"), "u")
    assert ids(session.get_history()) == ["u", "two"]
    session.append_message(message("more"), "one")
    assert ids(session.get_history()) == ["u", "one", "more"]


def test_an_update_keeps_the_place_and_inserts_nothing(session, store, now_ms):
    for message_id in ("a", "b"):
        session.append_message(message(message_id))
    assert session.update_message(message("a", "new")) is True
    assert session.update_message(message("z")) is False
    assert [one.text for one in Session(store, now_ms).get_history()] == ["new", "b"]


def test_what_is_read_is_never_older_than_what_was_written(session, store, now_ms):
    # FR-07
    session.append_message(message("a"))
    session.get_history()
    session.append_message(message("b"))
    session.update_message(message("a", "new"))
    assert session.get_history() == Session(store, now_ms).get_history()


def test_a_history_that_was_handed_out_does_not_change(session):
    session.append_message(message("a"))
    before = session.get_history()
    before.clear()
    assert ids(session.get_history()) == ["a"]


def test_a_row_with_corrupt_json_is_skipped_and_keeps_the_rest_together(session, store, now_ms):
    # S5
    for message_id in ("a", "b", "c"):
        session.append_message(message(message_id))
    store.execute("UPDATE assistant_messages SET content = '{' WHERE id = 'b'")
    assert ids(Session(store, now_ms).get_history()) == ["a", "c"]


def test_a_row_that_others_inserted_without_a_number_comes_last(session, store, now_ms):
    session.append_message(message("a"))
    content = '{"id":"x","role":"user","parts":[]}'
    store.execute("INSERT INTO assistant_messages VALUES ('x', '', 'a', 'user', ?, 5, NULL)", (content,))
    assert ids(Session(store, now_ms).get_history()) == ["a", "x"]


def test_a_circle_of_parents_ends(session, store, now_ms):
    session.append_message(message("a"))
    session.append_message(message("b"))
    session.append_message(message("c"))
    store.execute("UPDATE assistant_messages SET parent_id = 'b' WHERE id = 'a'")
    assert ids(Session(store, now_ms).get_history()) == ["a", "b", "c"]


def test_sessions_in_one_database_do_not_mix(session, store, now_ms):
    other = Session(store, now_ms, "other")
    session.append_message(message("a"))
    other.append_message(message("b"))
    session.clear_messages()
    assert (ids(session.get_history()), ids(other.get_history())) == ([], ["b"])


def test_a_dropped_table_is_made_again(session, store):
    # delete_all drops what is not named cf_...
    session.append_message(message("a"))
    store.execute("DROP TABLE assistant_messages")
    session.forget()
    session.append_message(message("b"))
    assert ids(session.get_history()) == ["b"]


def test_saving_twice_neither_doubles_nor_loses(session):
    # recovery T7
    session.save_message(message("a", "part"))
    session.save_message(message("a", "whole"))
    assert [one.text for one in session.get_history()] == ["whole"]
