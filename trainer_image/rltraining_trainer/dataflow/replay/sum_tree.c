/* The loops of sum_tree.py, which says what they do, and does the same without them: the same operations on each number in
   the same order, so the same bits. `nodes` is its heap of 2 * width numbers; node i has the children 2i and 2i + 1. */

#include <stdbool.h>
#include <stdint.h>

/* Leaf `slots[i]` becomes `values[i]`; `scratch` has room for `count` numbers. False, and nothing has changed, if there
   is no such slot. */
bool set(double *nodes, int64_t width, int64_t capacity, int64_t count, const int64_t *slots, const double *values,
         int64_t *scratch)
{
    bool known = true;
    for (int64_t i = 0; i < count; i++)
        known &= (slots[i] >= 0) & (slots[i] < capacity);
    if (!known)
        return false;
    for (int64_t i = 0; i < count; i++) {
        scratch[i] = width + slots[i];
        nodes[scratch[i]] = values[i];
    }
    for (int64_t level = width; level > 1; level /= 2) {
        int64_t parents = 0, last = 0;
        for (int64_t i = 0; i < count; i++) { /* children side by side have one parent: it is then done once */
            int64_t parent = scratch[i] / 2;
            parents += parent != last;
            scratch[parents - 1] = last = parent;
            nodes[parent] = nodes[2 * parent] + nodes[2 * parent + 1];
        }
        count = parents;
    }
    return true;
}

/* `slots[i]` becomes where `points[i]` lies; `points` are used up. Level by level for all points, and without branches: so
   their accesses to memory wait together. */
void query(const double *nodes, int64_t width, int64_t count, double *points, int64_t *slots)
{
    for (int64_t i = 0; i < count; i++)
        slots[i] = 1;
    for (int64_t level = width; level > 1; level /= 2)
        for (int64_t i = 0; i < count; i++) {
            int64_t child = 2 * slots[i];
            double left = nodes[child];
            int64_t right = (points[i] >= left) & (nodes[child + 1] > 0);
            points[i] -= left * (double)right;
            slots[i] = child + right;
        }
    for (int64_t i = 0; i < count; i++)
        slots[i] -= width;
}
