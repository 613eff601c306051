/* Every process adds the ranks of all, as does MPI; with a path as argument, once that exists. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **arguments) {
    int rank, size, sum;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    while (count > 1 && access(arguments[1], F_OK) != 0) usleep(50000);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("%d of %d on node %s with %s: %d\n", rank, size, getenv("HEADGATE_RANK"),
           getenv("CUDA_VISIBLE_DEVICES"), sum);
    MPI_Finalize();
    return 0;
}
