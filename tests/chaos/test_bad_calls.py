"""Bad names, bad calls, bad values and bad errors on a real Ray; after each the object works as before."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from runtime.errors import (
    ConnectionLost,
    InvalidId,
    PerdureError,
    RemoteError,
    SqlError,
    StorageLimit,
    UnknownMethod,
    UsageError,
)
from tests.chaos.conftest import Lab
from tests.chaos.objects import Notes, Tripper

pytestmark = [
    pytest.mark.slow,
    pytest.mark.chaos,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest_asyncio.fixture(loop_scope="module")
async def tripper(lab: Lab) -> AsyncIterator[Any]:
    """One object that all tests ill-treat; each then finds it alive, the same instance, with its lines in place."""
    stub = lab.get(Tripper, "t")
    await stub.add("before")
    before = await stub.lines()
    pid = await lab.pid(stub.object_id)
    yield stub
    assert await lab.pid(stub.object_id) == pid
    after = await stub.lines()
    assert after[: len(before)] == before
    assert await stub.add("still works") == len(after) + 1


# --- names ---


@pytest.mark.parametrize(
    "name",
    ["a/b", "..", "../../etc/x", "👩‍🚀 ümläut", " ", "a\nb", "%s'\"; --", "x" * 1024, "é" * 512],
    ids=lambda name: ascii(name)[:20],
)
async def test_a_strange_name_is_a_name_like_any_other(lab: Lab, name: str) -> None:
    # runtime D1
    notes = lab.get(Notes, name)
    assert await notes.add("mine") == 1
    assert await notes.called() == name
    files = (lab.cluster.data_dir / "objects").resolve()
    assert lab.folder(notes).resolve().parent.parent == files
    assert (lab.folder(notes) / "object.duckdb").exists()
    assert name in [known.path[-1][1] for known in await lab.cluster.list_objects()]


async def test_names_that_differ_in_case_or_form_are_two_objects(lab: Lab) -> None:
    # runtime D1: case-sensitive; composed and decomposed letters are different bytes
    for name in ("name", "Name", "\u00e9", "e\u0301"):
        assert await lab.get(Notes, name).add(name) == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x" * 1025, "1,025 bytes; at most 1,024"),
        ("é" * 513, "1,026 bytes; at most 1,024"),
        ("a\x00b", "NUL"),
        ("", "is empty"),
        ("\ud800", "surrogate"),
        (7, "must be text, not int"),
    ],
    ids=["1025 bytes", "1026 bytes in 513 letters", "NUL", "empty", "half a letter", "number"],
)
async def test_a_name_that_cannot_be_an_address_is_refused_before_anything_starts(
    lab: Lab, name: Any, message: str
) -> None:
    # runtime D1
    known = len(await lab.cluster.list_objects())
    with pytest.raises(InvalidId, match=message):
        lab.get(Notes, name)
    assert len(await lab.cluster.list_objects()) == known


# --- classes, methods, arguments ---


@pytest.mark.parametrize("cls", [dict, object(), "Notes"], ids=["dict", "instance", "text"])
async def test_what_is_no_class_of_objects_is_refused_with_what_to_derive_from(lab: Lab, cls: Any) -> None:
    # style 6: UsageError
    with pytest.raises(UsageError, match="derive it from DurableObject"):
        lab.get(cls, "x")


@pytest.mark.parametrize("method", ["missing", "attribute", "on_start", "boot"])
async def test_a_method_that_is_none_is_refused_by_name(tripper: Any, method: str) -> None:
    # runtime A27: every public method, and nothing else
    with pytest.raises(UnknownMethod, match=method):
        await getattr(tripper, method)()


async def test_a_private_method_is_not_there(tripper: Any) -> None:
    # runtime A27
    with pytest.raises(AttributeError, match="private names are not reachable"):
        await tripper._hidden()


@pytest.mark.parametrize(
    ("arguments", "named"), [((), {}), (("a", "b"), {}), (("a",), {"colour": 1}), (("a",), {"body": "b"})]
)
async def test_a_call_with_wrong_arguments_is_refused_with_the_signature(
    tripper: Any, arguments: tuple[Any, ...], named: dict[str, Any]
) -> None:
    # style 6: UsageError names the call and its form
    with pytest.raises(UsageError, match=r"Tripper/t\.add cannot be called like this: .* It is add\(body: 'str'\)"):
        await tripper.add(*arguments, **named)


async def test_an_argument_of_a_wrong_type_fails_in_the_object_and_leaves_nothing_there(tripper: Any) -> None:
    # runtime D10, D23, D34
    before = await tripper.lines()
    with pytest.raises(PerdureError) as caught:
        await tripper.add(["no", "text", object])
    assert caught.value.retryable is False
    assert await tripper.lines() == before


async def test_an_argument_that_no_process_can_have_is_refused_at_the_caller(tripper: Any) -> None:
    # runtime A27: arguments are copied
    with pytest.raises(UsageError, match=r"the arguments of Tripper/t\.add cannot be copied .*lock") as caught:
        await tripper.add(threading.Lock())
    assert "Pass plain data" in caught.value.message


async def test_a_result_that_no_process_can_have_is_an_error_that_names_the_method(tripper: Any) -> None:
    # runtime A27
    with pytest.raises(UsageError, match=r"the result of Tripper/t\.returns_a_lock cannot be copied"):
        await tripper.returns_a_lock()


# --- errors of user code ---


async def test_an_exception_that_cannot_be_pickled_arrives_with_type_text_and_traceback(tripper: Any) -> None:
    # runtime D34
    with pytest.raises(RemoteError) as caught:
        await tripper.raises_unpicklable()
    assert caught.value.type_name == "tests.chaos.objects.Unpicklable"
    assert caught.value.message == "the lock is inside"
    assert "in raises_unpicklable" in caught.value.remote_traceback
    assert (caught.value.remote, caught.value.retryable) == (True, False)


async def test_an_exception_without_a_text_arrives_with_its_type(tripper: Any) -> None:
    # runtime D34
    with pytest.raises(RemoteError) as caught:
        await tripper.raises_unprintable()
    assert caught.value.type_name == "tests.chaos.objects.Unprintable"
    assert "cannot be shown" in caught.value.message


# --- values and statements ---


async def test_a_value_over_two_megabytes_is_refused_with_key_and_size_and_the_old_one_stays(tripper: Any) -> None:
    # runtime D14
    await tripper.put("big", "small")
    with pytest.raises(StorageLimit, match=r"'big'.*2,\d\d\d,\d\d\d"):
        await tripper.put("big", bytes(2_100_000))
    assert await tripper.get("big") == "small"


async def test_a_value_just_under_two_megabytes_is_kept_as_it_is(tripper: Any) -> None:
    # runtime D14
    await tripper.put("fits", bytes(1_999_000))
    assert await tripper.get("fits") == bytes(1_999_000)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELEKT 1", "SELEKT"),
        ("SELECT * FROM nowhere", "nowhere"),
        ("INSERT INTO notes VALUES (0, NULL)", "NOT NULL"),
        ("INSERT INTO notes VALUES (1, 'again')", "Duplicate key"),
        ("COMMIT", "refused"),
        ("ATTACH '/tmp/other.db'", "refused"),
        ("", "no statement"),
    ],
)
async def test_a_statement_that_fails_is_named_and_leaves_the_object_as_it_was(
    tripper: Any, query: str, message: str
) -> None:
    # runtime D21, D23
    with pytest.raises(SqlError, match=message) as caught:
        await tripper.run_sql(query)
    assert caught.value.query == query
    assert caught.value.retryable is False


async def test_a_failed_statement_undoes_only_itself(tripper: Any) -> None:
    # runtime D12
    number = len(await tripper.lines())
    assert await tripper.survives_bad_sql() == number + 2
    assert (await tripper.lines())[number:] == ["before the bad statement", "after it"]


# --- the end of the process by user code ---


async def test_user_code_that_ends_its_process_is_a_lost_connection_and_the_next_call_works(lab: Lab) -> None:
    # runtime D6, D37
    stub = lab.get(Tripper, "exits")
    assert await stub.add("before") == 1
    with pytest.raises(ConnectionLost, match=r"Tripper/exits\.exits: network connection lost") as caught:
        await stub.exits()
    assert caught.value.retryable is True
    assert await stub.lines() == ["before"]
    assert await stub.add("after") == 2
