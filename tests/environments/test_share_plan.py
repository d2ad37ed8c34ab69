"""Shares of a matrix's environments: what each job of a CI service runs."""

import pytest

from whichtorch.base.errors import UsageError
from whichtorch.environments.additions import Share
from whichtorch.environments.share_plan import SharePlan
from whichtorch.model import Build, Config, Request


def requests(number: int, build: str = "cpu", config: str = "default") -> list[Request]:
    return [
        Request(torch=f"2.{minor}.0", python="3.11", build=Build(name=build), config=Config(name=config))
        for minor in range(number)
    ]


@pytest.mark.parametrize("number", [0, 1, 4, 9])
@pytest.mark.parametrize("count", [1, 3, 4, 11])
def test_shares_are_the_whole(number: int, count: int) -> None:
    """All shares together have each environment once, in order, also where some have none; they are alike in size."""
    taken = [Share(share, count).of(range(number)) for share in range(1, count + 1)]
    assert [item for share in taken for item in share] == list(range(number))
    sizes = [len(share) for share in taken]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("text", ["0/4", "5/4", "2", "2/", "/4", "a/b", "-1/4", "1/0", "1.5/2"])
def test_what_is_no_share_is_a_mistake(text: str) -> None:
    """The remedy shows what a share looks like."""
    assert str(Share.named("2/4")) == "2/4"
    with pytest.raises(UsageError, match="is not a share") as caught:
        Share.named(text)
    assert caught.value.hint == "write it as 2/4: the second of four"


def test_one_environment_is_one_share() -> None:
    """The job is called what the environment is called; its options ask for just that environment."""
    plan = SharePlan.of(requests(1), None)
    assert plan.model_dump(mode="json", by_alias=True) == {
        "schema": 1,
        "environments": [{"label": "torch-2.0.0-cpu", "options": ["--torch", "2.0.0", "--build", "cpu"]}],
        "shares": [
            {
                "share": "1/1",
                "name": "torch-2.0.0-cpu",
                "environments": ["torch-2.0.0-cpu"],
                "cache": "wheels-2.0.0-cpu",
            }
        ],
    }


@pytest.mark.parametrize(
    ("number", "asked", "count"), [(256, None, 256), (257, None, 256), (1000, None, 256), (1000, 7, 7), (3, 7, 3)]
)
def test_no_more_shares_than_jobs_or_environments(number: int, asked: int | None, count: int) -> None:
    """Beyond 256 environments a share has several, as `matrix --share` takes them; names tell how many."""
    asked_for = requests(number)
    shares = SharePlan.of(asked_for, asked).shares
    assert len(shares) == count
    labels = [request.label for request in asked_for]
    assert [label for share in shares for label in share.environments] == labels
    assert all(tuple(Share.named(share.share).of(labels)) == share.environments for share in shares)
    assert len({share.name for share in shares}) == count
    assert all(("more" in share.name) == (len(share.environments) > 1) for share in shares)


@pytest.mark.parametrize(
    ("number", "build", "kept"), [(32, "cpu", True), (33, "cpu", False), (2, "pypi", False), (2, "nightly-cpu", False)]
)
def test_caches_fit_into_what_the_service_keeps(number: int, build: str, kept: bool) -> None:
    """Releases for the CPU are kept, as many as there is room for; gigabytes of CUDA and nightlies are not."""
    assert {bool(share.cache) for share in SharePlan.of(requests(number, build), None).shares} == {kept}


def test_environments_of_the_same_wheels_share_a_cache() -> None:
    """Two that differ in their config take the same wheels."""
    plan = SharePlan.of([*requests(1), *requests(1, config="single-thread")], None)
    assert [share.cache for share in plan.shares] == ["wheels-2.0.0-cpu"] * 2


def test_nothing_to_share_is_a_mistake() -> None:
    """A plan without environments would be a night that is green because nothing ran."""
    with pytest.raises(UsageError, match="asks for no environments"):
        SharePlan.of([], None)
