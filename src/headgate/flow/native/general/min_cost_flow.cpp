// Min-cost flow for any network: checks sizes, and solves for as many units as can be sent.
#include <algorithm>
#include <optional>
#include <string>

#include "../errors.hpp"
#include "cost_scaling.hpp"
#include "network.hpp"
#include "residual.hpp"

namespace headgate::flow {
namespace {

constexpr Wide kMostUnits = Wide{1} << 61;

std::string text(Wide value) {
    std::string digits;
    do {
        digits.insert(digits.begin(), static_cast<char>('0' + value % 10));
        value /= 10;
    } while (value > 0);
    return digits;
}

void check_units(Wide units, const std::string& what) {
    if (units >= kMostUnits) {
        throw BadInput(what + " " + text(units) + " units together: too many to add up exactly" +
                       " (at most " + text(kMostUnits - 1) + ")");
    }
}

struct Supplies {
    Wide in = 0, out = 0;

    explicit Supplies(std::span<const Number> supply) {
        for (const Number units : supply) {
            (units > 0 ? in : out) += units > 0 ? Wide{units} : -Wide{units};
        }
        check_units(in, "supplies are");
        check_units(out, "what leaves is");
    }
};

// No optimal flow needs more on an arc than all supplies, which follow paths, plus all flow around
// cycles of negative cost; so larger capacities are cut to one unit more.
std::vector<Number> useful_capacities(const Network& network, const Supplies& supplies) {
    Wide useful = supplies.in;
    for (Index a = 0; a < network.arcs(); ++a) {
        useful += network.cost[a] < 0 ? network.capacity[a] : 0;
    }
    check_units(useful, "supplies and arcs of negative cost carry");
    std::vector<Number> capacity(network.capacity.begin(), network.capacity.end());
    std::vector<Wide> passing(network.supply.size(), 0);
    for (Index a = 0; a < network.arcs(); ++a) {
        capacity[a] = std::min(capacity[a], static_cast<Number>(useful + 1));
        passing[network.tail[a]] += capacity[a];
        passing[network.head[a]] += capacity[a];
    }
    for (std::size_t v = 0; v < passing.size(); ++v) {
        check_units(passing[v], "the arcs of vertex " + std::to_string(v) + " carry");
    }
    return capacity;
}

// ---------------------------------------------------------------- feasible supplies

template <class Price>
std::optional<Flow> attempt(const Network& network) {
    Number largest = 0;
    for (const Number cost : network.cost) {
        largest = std::max(largest, cost < 0 ? -cost : cost);
    }
    const Number scale = Number{network.vertices()} + 1;
    Residual graph(network, scale);
    CostScaling<Price> scaling(graph, {network.supply.begin(), network.supply.end()}, largest,
                               scale);
    if (!scaling.run()) {
        return std::nullopt;
    }
    Flow result;
    result.potential = scaling.potentials();
    result.flow.resize(network.tail.size());
    for (Index a = 0; a < network.arcs(); ++a) {
        const bool negative_loop = network.tail[a] == network.head[a] && network.cost[a] < 0;
        result.flow[a] = negative_loop ? network.capacity[a] : graph.flow(a);
        result.cost += Wide{result.flow[a]} * network.cost[a];
    }
    return result;
}

std::optional<Flow> send_all(const Network& network) {
    try {
        return attempt<Number>(network);
    } catch (const PriceTooLarge&) {
        return attempt<Wide>(network);
    }
}

// ---------------------------------------------------------------- infeasible supplies

// A network that arcs can be added to.
struct Extended {
    std::vector<Number> tail, head, capacity, cost, supply;

    explicit Extended(const Network& network)
        : tail(network.tail.begin(), network.tail.end()),
          head(network.head.begin(), network.head.end()),
          capacity(network.capacity.begin(), network.capacity.end()),
          cost(network.cost.begin(), network.cost.end()),
          supply(network.supply.begin(), network.supply.end()) {}

    Network view() const { return {tail, head, capacity, cost, supply}; }

    void add_arc(Number from, Number to, Number units, Number price) {
        tail.push_back(from);
        head.push_back(to);
        capacity.push_back(units);
        cost.push_back(price);
    }

    // Lets supplies also flow to the vertex `sink`, and demands also be met from `source`.
    void add_bypass(std::span<const Number> old_supply, Number sink, Number source, Number price) {
        for (std::size_t v = 0; v < old_supply.size(); ++v) {
            if (old_supply[v] > 0) {
                add_arc(static_cast<Number>(v), sink, old_supply[v], price);
            } else if (old_supply[v] < 0) {
                add_arc(source, static_cast<Number>(v), -old_supply[v], 0);
            }
        }
    }
};

// The number of units that cannot be sent. That is a min-cost flow itself: only the bypass of the
// network costs anything.
Number count_unsent(const Network& network, const Supplies& supplies) {
    Extended past(network);
    std::fill(past.cost.begin(), past.cost.end(), 0);
    past.add_bypass(network.supply, network.vertices(), network.vertices(), 1);
    past.supply.push_back(static_cast<Number>(supplies.out - supplies.in));
    return static_cast<Number>(send_all(past.view())->cost);
}

// The cheapest of the flows that leave exactly `unsent` units.
Flow send_the_rest(const Network& network, const Supplies& supplies, Number unsent) {
    const Number sink = network.vertices(), source = sink + 1;
    Extended rest(network);
    rest.add_bypass(network.supply, sink, source, 0);
    rest.supply.push_back(-unsent);
    rest.supply.push_back(static_cast<Number>(supplies.out - supplies.in + unsent));
    Flow result = *send_all(rest.view());
    result.flow.resize(network.tail.size());
    result.potential.resize(network.supply.size());
    result.unsent = unsent;
    return result;
}

}  // namespace

Flow min_cost_flow(const Network& network) {
    const Supplies supplies(network.supply);
    const std::vector<Number> capacity = useful_capacities(network, supplies);
    Network useful = network;
    useful.capacity = capacity;
    if (supplies.in == supplies.out) {
        if (std::optional<Flow> all = send_all(useful)) {
            return *std::move(all);
        }
    }
    return send_the_rest(useful, supplies, count_unsent(useful, supplies));
}

}  // namespace headgate::flow
