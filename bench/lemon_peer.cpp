// Solves a min-cost flow network with LEMON and prints the time.
//
//   lemon_peer FILE simplex|scaling RUNS
//
// FILE: vertices and arcs (two int64), then supply[vertices] int64, tail[arcs] int32,
// head[arcs] int32, capacity[arcs] int64, cost[arcs] int64; arcs in the order of their tails.
// Prints a line per run: milliseconds from the arrays in memory to the solution, milliseconds of
// LEMON's run() alone, the optimum.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <lemon/cost_scaling.h>
#include <lemon/network_simplex.h>
#include <lemon/static_graph.h>

namespace {

using Clock = std::chrono::steady_clock;
using Graph = lemon::StaticDigraph;
using Simplex = lemon::NetworkSimplex<Graph, std::int64_t, std::int64_t>;
using Scaling = lemon::CostScaling<Graph, std::int64_t, std::int64_t>;

struct Network {
    std::vector<std::int64_t> supply;
    std::vector<std::int32_t> tail, head;
    std::vector<std::int64_t> capacity, cost;
};

template <typename Value>
std::vector<Value> read(std::ifstream& file, std::int64_t count) {
    std::vector<Value> values(static_cast<std::size_t>(count));
    const auto bytes = static_cast<std::streamsize>(values.size() * sizeof(Value));
    if (!file.read(reinterpret_cast<char*>(values.data()), bytes)) {
        std::fprintf(stderr, "lemon_peer: the file ends too early\n");
        std::exit(2);
    }
    return values;
}

Network read_network(const char* path) {
    std::ifstream file(path, std::ios::binary);
    const auto counts = read<std::int64_t>(file, 2);
    Network network;
    network.supply = read<std::int64_t>(file, counts[0]);
    network.tail = read<std::int32_t>(file, counts[1]);
    network.head = read<std::int32_t>(file, counts[1]);
    network.capacity = read<std::int64_t>(file, counts[1]);
    network.cost = read<std::int64_t>(file, counts[1]);
    return network;
}

double milliseconds(Clock::time_point since) {
    return std::chrono::duration<double, std::milli>(Clock::now() - since).count();
}

template <typename Solver>
void run(const Network& network) {
    const auto start = Clock::now();
    const auto arcs = static_cast<int>(network.tail.size());
    std::vector<std::pair<int, int>> ends(network.tail.size());
    for (int a = 0; a < arcs; ++a) ends[a] = {network.tail[a], network.head[a]};
    Graph graph;
    graph.build(static_cast<int>(network.supply.size()), ends.begin(), ends.end());
    Graph::NodeMap<std::int64_t> supply(graph);
    for (int v = 0; v < graph.nodeNum(); ++v) supply[graph.node(v)] = network.supply[v];
    Graph::ArcMap<std::int64_t> capacity(graph), cost(graph);
    for (int a = 0; a < arcs; ++a) {
        capacity[graph.arc(a)] = network.capacity[a];
        cost[graph.arc(a)] = network.cost[a];
    }
    Solver solver(graph);
    solver.upperMap(capacity).costMap(cost).supplyMap(supply);
    const auto solving = Clock::now();
    if (solver.run() != Solver::OPTIMAL) {
        std::fprintf(stderr, "lemon_peer: no optimum\n");
        std::exit(3);
    }
    const double solve_ms = milliseconds(solving), cold_ms = milliseconds(start);
    const auto optimum = solver.template totalCost<std::int64_t>();
    std::printf("%.6f %.6f %lld\n", cold_ms, solve_ms, static_cast<long long>(optimum));
}

}  // namespace

int main(int argc, char** argv) {
    const std::string algorithm = argc == 4 ? argv[2] : "";
    if (algorithm != "simplex" && algorithm != "scaling") {
        std::fprintf(stderr, "usage: lemon_peer FILE simplex|scaling RUNS\n");
        return 2;
    }
    const Network network = read_network(argv[1]);
    for (int left = std::atoi(argv[3]); left > 0; --left) {
        if (algorithm == "simplex") {
            run<Simplex>(network);
        } else {
            run<Scaling>(network);
        }
    }
}
