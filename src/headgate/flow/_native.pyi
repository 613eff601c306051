"""The compiled part of the flow core; its sources are in `native/`."""

from collections.abc import Sequence

from headgate.base.arrays import Bools, Ints
from headgate.flow.network import AnyInts

def fetch_options(
    *,
    first: Ints,
    size: Ints,
    price: Sequence[float],
    most: int,
    copy_first: Ints,
    copies: Ints,
    region: Ints,
    unit_type: Ints,
    accepts: Bools,
    shortest: Ints,
    windows: int,
    places: Ints,
    dearer: int,
    own_place: Ints,
    own_cost: Ints,
) -> tuple[Ints, Ints, Ints]:
    """Return the options of units that fetch items: offsets `[units + 1]`, places and costs.

    Unit u fetches the items `[first[u], first[u + 1])`. Item i costs `size[i]` times one of three
    prices, ascending: the first on a leaf with a copy, the second in a region with one, the third
    elsewhere; rounded, halves to even, and at most `most`, which is 2^40 or less. Its copies are on
    the leaves `copies[copy_first[i]:copy_first[i + 1]]`, none twice; `region[leaf]` is the region
    of a leaf.

    `places` (`[leaves + regions + 1, classes x windows]`) gives the place of each window of each
    class on leaves, in regions and anywhere, negative for none. A unit accepts the classes of its
    type, `accepts[unit_type[u]]` (`[types, classes]`), each for `dearer` more than the accepted one
    below, and its window `shortest[u]` and those above, each for `dearer` more than the last one,
    which is unlimited; all its items together cost at most `most`. In addition, it has the options
    `own_place[u]` for `own_cost[u]`, both `[units, own options]`.

    The options of a unit are those on leaves, in regions (where that is cheaper than the place
    around), anywhere, and its own. The other arrays are int64; raises BadNetwork.
    O(copies x log(copies of a unit) + options).
    """

def joined_options(
    units: int, parts: list[tuple[AnyInts | int, AnyInts | int, AnyInts | int]]
) -> tuple[Ints, Ints, Ints]:
    """Return offsets `[units + 1]`, places and costs: those of each unit, part after part.

    A part is counts by unit, places and costs: arrays of 32 or 64 bits, or one number for all.
    Raises BadNetwork. O(options + units x parts).
    """

def min_cost_flow(
    tail: Ints, head: Ints, capacity: Ints, cost: Ints, supply: Ints
) -> tuple[Ints, Ints, int, int]:
    """Return flow, potential, cost and the number of units not sent; arrays as of `Network`."""

class Outcome:
    """The cost of an assignment, its number of units without a place, and its optimality gap."""

    @property
    def cost(self) -> int: ...
    @property
    def unplaced(self) -> int: ...
    @property
    def gap(self) -> int: ...
    @property
    def options_read(self) -> int:
        """Number of options that the searches read: the work done, the same on any machine."""
    def __deepcopy__(self, memo: object) -> Outcome: ...

class LaminarSolver:
    """Min-cost assignment of units to nested capacities, re-optimized after changes.

    Places form a forest: `parent[v]`, -1 for a root. A leaf holds at most `capacity[v]`
    units; a place with children holds what its leaves hold together, and has the capacity 0 itself.
    A unit takes one of its options (place, cost), such that no place has more units below it than
    its leaves can hold: a min-cost flow from units to places, down the forest, to the sink. As many
    units as possible get a place; of such plans, the solver finds one of least total cost. All
    arrays are int64.

    Changes are collected; `solve` re-optimizes from the last plan (warm start), in time that
    depends on the changes rather than on the size. Methods check their arguments before they change
    anything and raise BadNetwork. The same calls give the same plan in any process (without
    `budget_s`). Algorithm: successive shortest augmenting paths on the contraction of the forest to
    its saturated places.
    """

    def __init__(self, parent: Ints, capacity: Ints) -> None: ...
    def __deepcopy__(self, memo: object) -> LaminarSolver:
        """Return a copy: after the same calls, both have the same plan. O(memory)."""
    def add(self, offsets: Ints, place: Ints, cost: Ints) -> Ints:
        """Add units with the options `[offsets[i], offsets[i + 1])`; return their ids.

        Ids of removed units are reused. Raises BadNetwork also for a unit without options and for
        costs so large that sums along a path through all places might not be exact.
        """
    def remove(self, ids: Ints) -> None:
        """Remove units, placed or not."""
    def replace(self, ids: Ints, offsets: Ints, place: Ints, cost: Ints) -> None:
        """Replace the options of units; they keep their ids.

        O(units with an option at the same places).
        """
    def reprice(self, place: int, ids: Ints, cost: Ints) -> None:
        """Set the cost of all options of these units at one place; their other options stay.

        The next `solve` moves units that now have a cheaper option. Raises BadNetwork also for a
        unit without an option at the place. O(units with an option at the
        place + options of `ids`).
        """
    def reprice_all(self, place: Ints, cost: Ints) -> None:
        """Set the cost of the options of all units at each of these leaves, as `reprice` does."""
    def add_places(self, parent: Ints, capacity: Ints) -> Ints:
        """Add places below roots, old or new places (none of them a leaf that has capacity).

        O(options), as places are added rarely.
        """
    def set_capacity(self, place: Ints, capacity: Ints) -> None:
        """Set the capacities of leaves; 0 closes one."""
    def solve(self, budget_s: float | None = None) -> Outcome:
        """Make the plan optimal or, if `budget_s` seconds run out, feasible with a proven gap.

        Units left at the deadline take their best option with room, if there is one. The next
        `solve` continues from there.
        """
    def place_of(self, ids: Ints) -> Ints:
        """Return the places of the options that units took; -1 for none."""
    def leaf_of(self, ids: Ints) -> Ints:
        """Return the leaf of each unit, at or below its place; -1 for none.

        Units keep their leaves from plan to plan where possible.
        """
    def cost_of(self, ids: Ints) -> Ints:
        """Return the costs of the options that units took; 0 for none."""
    def moved(self) -> Ints:
        """Return the units whose place or leaf may have changed since the last call.

        Each once, with those added since, without those removed since.
        """
    def prices(self) -> Ints:
        """Return the dual price of each place, `[places]`: the cost of one unit of capacity less.

        The prices are an optimal dual solution: each unit's option has the least cost + price; a
        price is never below its parent's, and 0 where capacity is left.
        """
    def _check(self) -> None: ...
