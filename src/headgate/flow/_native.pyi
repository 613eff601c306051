"""The compiled part of the flow core; its sources are in `native/`."""

from collections.abc import Sequence

from headgate.flow.network import AnyInts, Ints

def fetch_options(
    *,
    first: Ints,
    size: Ints,
    price: Sequence[float],
    most: int,
    copy_first: Ints,
    copies: Ints,
    region: Ints,
    smallest: Ints,
    at: Ints,
    dearer: int,
    own_place: Ints,
    own_cost: Ints,
) -> tuple[Ints, Ints, Ints]:
    """Return the options of units that fetch items: offsets `[units + 1]`, places and costs.

    Unit u fetches the items `[first[u], first[u + 1])`. Item i costs `size[i]` times one of three
    prices, which grow: the first on a leaf with a copy, the second in a region with one, the third
    elsewhere; rounded, halves to even, and no more than `most`, 2^40 or less. Its copies are on the
    leaves `copies[copy_first[i]:copy_first[i + 1]]`, none twice, and `region` tells where each leaf
    is.

    `at` (`[leaves + regions + 1, classes]`) numbers the places of each class on leaves, in regions
    and anywhere; negative ones are not there. A unit may go to its class `smallest[u]` and to
    those above, each for `dearer` more than the one below; what it fetches counts for `most` at
    most. Besides, it has the options `own_place[u]` for `own_cost[u]`, both `[units, so many]`.

    The options of a unit are those on leaves, in regions (each where that is cheaper than around),
    anywhere, and its own. All arrays are int64; raises BadNetwork. O(copies x log(copies of a unit)
    + options).
    """

def joined_options(
    units: int, parts: list[tuple[AnyInts | int, AnyInts | int, AnyInts | int]]
) -> tuple[Ints, Ints, Ints]:
    """Return offsets `[units + 1]`, places and costs: those of each unit part after part.

    Of each part the counts by unit, the places and the costs: arrays of 32 or 64 bits, or one
    number for all. Raises BadNetwork. O(options + units x parts).
    """

def min_cost_flow(
    tail: Ints, head: Ints, capacity: Ints, cost: Ints, supply: Ints
) -> tuple[Ints, Ints, int, int]:
    """Return flow, potential, cost and how many units are unsent; the arrays are a `Network`."""

class Outcome:
    """What a plan costs, how many units have no place, and how far it may be from the optimum."""

    @property
    def cost(self) -> int: ...
    @property
    def unplaced(self) -> int: ...
    @property
    def gap(self) -> int: ...
    @property
    def options_read(self) -> int:
        """How many options the searches read: what the plan took, the same wherever it runs."""

class LaminarSolver:
    """Placing units in nested capacities at least cost, kept optimal under changes.

    Places form a forest: `parent[v]`, -1 for a root. A leaf has room for `capacity[v]` units; a
    place with children has what its leaves have together, and itself the capacity 0. A unit takes
    one of its options (place, cost), so that below no place there are more units than its leaves
    have room for: the min-cost flow from units to places, down the forest, to the sink. As many
    units as possible get a place; of such plans it finds one of least total cost. All arrays are
    int64.

    Changes are collected; `solve` makes the plan optimal again, from where it was, in time that
    follows the changes rather than the size. Methods check what they are given before they change
    anything and raise BadNetwork. The same calls give the same plan in any process (without
    `budget_s`). Successive shortest paths on the contraction of the forest to its full places.
    """

    def __init__(self, parent: Ints, capacity: Ints) -> None: ...
    def add(self, offsets: Ints, place: Ints, cost: Ints) -> Ints:
        """Add units, those of options `[offsets[i], offsets[i + 1])`; return their ids.

        Ids of removed units are used again. Raises BadNetwork, too, for a unit without options and
        for costs so large that sums along a way through all places might not be exact.
        """
    def remove(self, ids: Ints) -> None:
        """Take units away, placed or not."""
    def replace(self, ids: Ints, offsets: Ints, place: Ints, cost: Ints) -> None:
        """Give units other options, of other costs; they keep their ids.

        O(units with an option at the same places).
        """
    def reprice(self, place: int, ids: Ints, cost: Ints) -> None:
        """Let all options of units at one place cost so much; what else they may take stays.

        Who has now a cheaper option elsewhere, or there, is placed anew by the next `solve`. Raises
        BadNetwork, too, for a unit without an option at the place. O(units with an option at the
        place + options of `ids`).
        """
    def reprice_all(self, place: Ints, cost: Ints) -> None:
        """Let the options of all units at each of these leaves cost so much, as `reprice` does."""
    def add_places(self, parent: Ints, capacity: Ints) -> Ints:
        """Add places below roots, old or new places (none of them a leaf that has capacity).

        O(options): places join rarely.
        """
    def set_capacity(self, place: Ints, capacity: Ints) -> None:
        """Give leaves other capacities; 0 closes one."""
    def solve(self, budget_s: float | None = None) -> Outcome:
        """Make the plan optimal; if time runs out, feasible, with a proven gap.

        Units for which there was no time take their best option with room, if there is one. The
        next `solve` goes on from where this one stopped.
        """
    def place_of(self, ids: Ints) -> Ints:
        """Return the places of the options that units took; -1 for none."""
    def leaf_of(self, ids: Ints) -> Ints:
        """Return the leaf where each unit is, at or below its place; -1 for none.

        Units keep their leaves from plan to plan where they can.
        """
    def cost_of(self, ids: Ints) -> Ints:
        """Return the costs of the options that units took; 0 for none."""
    def moved(self) -> Ints:
        """Return the units whose place or leaf may be another one since this was last asked.

        Each once, those added since among them, those removed since not.
        """
    def prices(self) -> Ints:
        """Return what one unit of capacity less below each place would cost, `[places]`.

        That is an optimal dual: each unit's option has the least cost + price; prices are never
        below those around, and 0 where there is room.
        """
    def _check(self) -> None: ...
