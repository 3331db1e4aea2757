"""Messages of factors of any number of nodes."""

from libc.math cimport INFINITY, exp, fabs, log
from libc.stdint cimport int32_t, int64_t

from sklearn_crf.kernels.messages.field cimport count_change
from sklearn_crf.kernels.messages.layer_messages cimport advance, begin, emit, retreat, weigh_leaves
from sklearn_crf.kernels.messages.layers cimport Layers, is_last, n_after, open_layers


# Norm-product belief propagation: block minimisation of the dual of a convex free energy, one node at a time.
#
# A factor F of nodes s has the counting number c_F = c_FF + sum_s c_sF. Its share of node s in the dual is
# lambda_s(y_F) = c_sF / c_F theta_F(y_F) + sum_t v_st(y_t). Messages are v_ss, and `cross` the other v_st, which are
# zero unless c_sF > 0. With hat c_sF = c_FF + c_sF, node s receives
#
#     m_F(a) = T hat c_sF log sum_{y_F: y_s = a} exp(theta_F(y_F) / (T c_F) - sum_{t != s, u} v_tu(y_u) / (T hat c_sF))
#
# and sends the optimal v_s., given the messages v_t. of the other nodes t of its factors (Hazan & Shashua 2010).

cdef struct Numbers:
    double unit  # temperature, or 1 for maxima
    const double* node_scores  # (N, K) -inf past the states of a node
    const double* node  # (N,) c_ss plus the c_FF of its factors
    const double* own  # (F,) c_FF
    const double* toward  # (n_slots,) hat c_sF
    const int64_t* cross_ptr  # (n_slots,) start of v_st of each slot in `cross`, or -1


cdef inline void open_numbers(object arrays, Numbers* c) except *:
    cdef:
        const double[:, ::1] node_scores = arrays.node_scores
        const double[::1] node = arrays.node
        const double[::1] own = arrays.own
        const double[::1] toward = arrays.toward
        const int64_t[::1] cross_ptr = arrays.cross_ptr
    c.unit = arrays.unit
    c.node_scores = &node_scores[0, 0] if node_scores.shape[0] else NULL
    c.node = &node[0] if node.shape[0] else NULL
    c.own = &own[0] if own.shape[0] else NULL
    c.toward = &toward[0] if toward.shape[0] else NULL
    c.cross_ptr = &cross_ptr[0] if cross_ptr.shape[0] else NULL


cdef inline const double* cross_of(const Layers* f, const Numbers* c, const double* cross, Py_ssize_t slot,
                                   Py_ssize_t other) noexcept nogil:
    """Return v_st for the slots of s and t."""
    return cross + c.cross_ptr[slot] + (other - f.slot_ptr[f.slot_factor[slot]]) * f.n_columns


cdef inline double sum_of_others(const Layers* f, const Numbers* c, const double* cross, Py_ssize_t slot,
                                 Py_ssize_t target, Py_ssize_t a) noexcept nogil:
    """Return the sum of v_ts(a) over the nodes t of the factor except the node s of ``slot`` and the target."""
    cdef:
        Py_ssize_t factor = f.slot_factor[slot], other
        double total = 0
    if c.cross_ptr[slot] < 0:
        return 0
    for other in range(f.slot_ptr[factor], f.slot_ptr[factor + 1]):
        if other != slot and other != target:
            total += cross_of(f, c, cross, other, slot)[a]
    return total


cdef inline void weigh_states(const Layers* f, const Numbers* c, const double* messages, const double* cross,
                              const double* beliefs, Py_ssize_t slot, Py_ssize_t target, double* state) noexcept nogil:
    """Compute the weights of the states of a slot for the message to the target slot."""
    cdef:
        Py_ssize_t K = f.n_columns, node = f.slot_node[slot], a
        double scale = 1 / (c.unit * c.toward[target])
    for a in range(f.n_states[node]):
        if beliefs[node * K + a] == -INFINITY:
            state[a] = -INFINITY
        else:
            state[a] = -scale * (messages[slot * K + a] + sum_of_others(f, c, cross, slot, target, a))


cdef inline Py_ssize_t seen_from(const Layers* f, const Numbers* c, Py_ssize_t slot) noexcept nogil:
    """Return the target slot for which weights of a slot are stored: the other end of an edge, else ``slot``."""
    cdef Py_ssize_t first = f.slot_ptr[f.slot_factor[slot]]
    if c.cross_ptr[slot] < 0 or f.slot_ptr[f.slot_factor[slot] + 1] - first != 2:
        return slot
    return 2 * first + 1 - slot


cdef inline bint depends_on_target(const Layers* f, const Numbers* c, Py_ssize_t slot) noexcept nogil:
    """Return whether the weights of a slot depend on the target, so that they cannot be reused between messages."""
    cdef Py_ssize_t factor = f.slot_factor[slot]
    return c.cross_ptr[slot] >= 0 and f.slot_ptr[factor + 1] - f.slot_ptr[factor] > 2


cdef inline void read_factor(const Layers* f, const Numbers* c, const double* messages, const double* cross,
                             const double* beliefs, Py_ssize_t factor, Py_ssize_t target, double* left, double* right,
                             double* state, double* symbol) noexcept nogil:
    """Recompute `left` up to the target and `right` down to the target; all of `right` if the target is -1."""
    cdef:
        Py_ssize_t first = f.slot_ptr[factor], slot
        Py_ssize_t until = target if target >= 0 else first
    begin(f, first, left)
    for slot in range(first, until):
        weigh_states(f, c, messages, cross, beliefs, slot, target, state)
        advance(f, slot, state, symbol, left + f.position_ptr[slot], left + f.position_ptr[slot + 1])
    for slot in range(f.slot_ptr[factor + 1] - 1, until, -1):
        weigh_states(f, c, messages, cross, beliefs, slot, target if target >= 0 else seen_from(f, c, slot), state)
        retreat(f, slot, state, symbol, right)


def read_factors(
    object layers,  # IN arrays of the model
    object numbers,  # IN counting numbers
    const double[:, ::1] messages,  # IN (n_slots, K) v_ss
    const double[::1] cross,  # IN v_st
    const double[:, ::1] beliefs,  # IN (N, K) -inf if a state is impossible
    double[::1] left,  # OUT (n_positions,)
    double[::1] right,  # OUT (n_positions,)
    double[::1] work,  # workspace
):
    """Compute `right` for a forward sweep."""
    cdef:
        Layers f
        Numbers c
        Py_ssize_t factor, n_factors = layers.n_factors
    open_layers(layers, &f)
    open_numbers(numbers, &c)
    with nogil:
        for factor in range(n_factors):
            read_factor(&f, &c, &messages[0, 0], &cross[0], &beliefs[0, 0], factor, -1, &left[0], &right[0],
                        &work[0], &work[f.n_columns])


cdef inline double normalise(const Layers* f, double divisor, Py_ssize_t n, double* total) noexcept nogil:
    """Normalise scores to log-beliefs; return the score that was subtracted."""
    cdef:
        Py_ssize_t a
        double top = -INFINITY, mass = 0
    for a in range(n):
        total[a] /= divisor
        top = total[a] if total[a] > top else top
    if top == -INFINITY:
        return top
    if not f.maximum:
        for a in range(n):
            mass += exp(total[a] - top)
        top += log(mass)
    for a in range(n):
        total[a] -= top
    return top * divisor


cdef inline double largest_change(const Layers* f, const double* fresh, const double* old, Py_ssize_t n,
                                  double scale, double worst) noexcept nogil:
    """Return the largest change of a message (scores for maxima, else probabilities), or ``worst`` if larger."""
    cdef:
        Py_ssize_t a
        double top = -INFINITY, old_top = -INFINITY, x, y, change, log_worst = log(worst)
    for a in range(n):
        top = -fresh[a] if -fresh[a] > top else top
        old_top = -old[a] if -old[a] > old_top else old_top
    for a in range(n):
        x, y = -fresh[a] - top, -old[a] - old_top
        change = fabs(x - y)
        if not f.maximum:
            # For most states, a bound on the change avoids the exponentials.
            x, y, change = scale * x, scale * y, scale * change
            if change <= worst:
                continue
            change = count_change(0 if x <= log_worst and y <= log_worst else fabs(exp(x) - exp(y)), change)
        if change > worst:
            worst = change
            log_worst = log(worst)
    return worst


cdef inline void mix(double* fresh, const double* old, const double* belief, Py_ssize_t n,
                     double damping) noexcept nogil:
    """Damp a message towards the old message, but keep the constant of the new message: the bound depends on it."""
    cdef:
        Py_ssize_t a
        double least = INFINITY, old_least = INFINITY
    for a in range(n):
        if belief[a] > -INFINITY:
            least = fresh[a] if fresh[a] < least else least
            old_least = old[a] if old[a] < old_least else old_least
    for a in range(n):
        if belief[a] > -INFINITY:
            fresh[a] += damping * (old[a] - old_least - fresh[a] + least)


cdef inline void send_cross(const Layers* f, const Numbers* c, const double* messages, double* cross, Py_ssize_t slot,
                            double share) noexcept nogil:
    """Update v_st of a node s for all other nodes t of a factor."""
    cdef:
        Py_ssize_t K = f.n_columns, factor = f.slot_factor[slot], other, a
        double* row
    for other in range(f.slot_ptr[factor], f.slot_ptr[factor + 1]):
        if other == slot:
            continue
        row = cross + c.cross_ptr[slot] + (other - f.slot_ptr[factor]) * K
        for a in range(f.n_states[f.slot_node[other]]):
            row[a] = -share * (messages[other * K + a] + sum_of_others(f, c, cross, other, slot, a))


cdef inline double update_node(const Layers* f, const Numbers* c, double* messages, double* cross, double* beliefs,
                               double* left, double* right, double damping, Py_ssize_t s, double worst, double* value,
                               double* work) noexcept nogil:
    """Update the messages of a node to their optimum; return the largest change, or ``worst`` if larger."""
    cdef:
        Py_ssize_t K = f.n_columns, n = f.n_states[s], i, slot, a
        double* state = work
        double* symbol = work + K
        double* fresh = work + 2 * K
        double* incoming = work + 3 * K
        double* belief = beliefs + s * K
        double scale, share
    for a in range(n):
        # Impossible states remain impossible.
        belief[a] = c.node_scores[s * K + a] if belief[a] > -INFINITY else -INFINITY
    for i in range(f.node_ptr[s], f.node_ptr[s + 1]):
        slot = f.node_slots[i]
        if depends_on_target(f, c, slot):
            read_factor(f, c, messages, cross, beliefs, f.slot_factor[slot], slot, left, right, state, symbol)
        emit(f, slot, left, right, symbol, incoming)
        for a in range(n):
            incoming[a] = c.unit * c.toward[slot] * incoming[a] - sum_of_others(f, c, cross, slot, slot, a)
            belief[a] += incoming[a]
        incoming += K
    value[0] = normalise(f, c.unit * c.node[s], n, belief)
    if value[0] == -INFINITY:
        return -1
    incoming = work + 3 * K
    for i in range(f.node_ptr[s], f.node_ptr[s + 1]):
        slot = f.node_slots[i]
        scale = c.own[f.slot_factor[slot]] / c.toward[slot]
        share = 1 - scale
        for a in range(n):
            fresh[a] = messages[slot * K + a]
            if belief[a] > -INFINITY:
                fresh[a] = scale * incoming[a] - c.unit * c.own[f.slot_factor[slot]] * belief[a]
                fresh[a] -= share * sum_of_others(f, c, cross, slot, slot, a)
        if damping > 0:
            mix(fresh, messages + slot * K, belief, n, damping)
        worst = largest_change(f, fresh, messages + slot * K, n, 1 / (c.unit * c.toward[slot]), worst)
        for a in range(n):
            messages[slot * K + a] = fresh[a]
        if c.cross_ptr[slot] >= 0:
            send_cross(f, c, messages, cross, slot, share)
        incoming += K
    return worst


cdef inline void move_on(const Layers* f, const Numbers* c, const double* messages, const double* cross,
                         const double* beliefs, Py_ssize_t s, int direction, double* left, double* right,
                         double* work) noexcept nogil:
    """Recompute `left` after a node, or `right` before it."""
    cdef Py_ssize_t i, slot, first
    for i in range(f.node_ptr[s], f.node_ptr[s + 1]):
        slot = f.node_slots[i]
        first = f.slot_ptr[f.slot_factor[slot]]
        if depends_on_target(f, c, slot) or (is_last(f, slot) if direction > 0 else slot == first):
            continue
        weigh_states(f, c, messages, cross, beliefs, slot, seen_from(f, c, slot), work)
        if direction > 0:
            advance(f, slot, work, work + f.n_columns, left + f.position_ptr[slot], left + f.position_ptr[slot + 1])
        else:
            retreat(f, slot, work, work + f.n_columns, right)


def sweep(
    object layers,  # IN arrays of the model
    object numbers,  # IN counting numbers
    double[:, ::1] messages,  # INOUT (n_slots, K) v_ss
    double[::1] cross,  # INOUT v_st
    double[:, ::1] beliefs,  # INOUT (N, K) logarithms, -inf if a state is impossible
    double[::1] values,  # OUT (N,) contribution of each node to the bound
    double[::1] left,  # INOUT (n_positions,) valid for a backward sweep after a forward sweep
    double[::1] right,  # INOUT (n_positions,) valid for a forward sweep after a backward sweep
    int direction,  # 1: first to last node, -1: last to first
    double damping,  # weight of the old message
    const int32_t[:, ::1] parts,  # IN (n, 2) first and last + 1 node of each component to update
    double[::1] changes,  # INOUT (n,) largest change of a message in each component
    double[::1] work,  # workspace ((3 + largest number of factors of a node) * K,)
):
    """Update the messages of all nodes of some components in turn; return -1, or a node without a possible state."""
    cdef:
        Layers f
        Numbers c
        Py_ssize_t part, i, s, failed = -1
        double change
        double* message = &messages[0, 0] if messages.shape[0] else NULL
        double* v = &cross[0]
    open_layers(layers, &f)
    open_numbers(numbers, &c)
    with nogil:
        for part in range(parts.shape[0]):
            for i in range(parts[part, 0], parts[part, 1]):
                s = i if direction > 0 else parts[part, 0] + parts[part, 1] - 1 - i
                change = update_node(&f, &c, message, v, &beliefs[0, 0], &left[0], &right[0], damping, s,
                                     changes[part], &values[s], &work[0])
                if change < 0:
                    failed = s
                    break
                changes[part] = change
                move_on(&f, &c, message, v, &beliefs[0, 0], s, direction, &left[0], &right[0], &work[0])
            if failed >= 0:
                break
    return failed


def leaf_statistics(
    object layers,  # IN arrays of the model
    object numbers,  # IN counting numbers
    const double[:, ::1] messages,  # IN (n_slots, K) v_ss
    const double[::1] cross,  # IN v_st
    const double[:, ::1] beliefs,  # IN (N, K) logarithms
    double[::1] left,  # OUT (n_positions,)
    double[::1] right,  # OUT (n_positions,)
    double[::1] statistics,  # INOUT (n_leaves,) summed beliefs
    double[::1] work,  # workspace (3 * K + largest number of leaves + 1,)
):
    """Sum the beliefs of factors by leaf; return -1, or the first factor without a possible joint state."""
    cdef:
        Layers f
        Numbers c
        Py_ssize_t factor, n_factors = layers.n_factors, first, slot, q, n, a, K, failed = -1
        const double* message = &messages[0, 0] if messages.shape[0] else NULL
        double total
        double* state = &work[0]
        double* symbol
        double* end
    open_layers(layers, &f)
    open_numbers(numbers, &c)
    K = f.n_columns
    symbol = &work[K]
    end = &work[3 * K]
    with nogil:
        for factor in range(n_factors):
            first = f.slot_ptr[factor]
            read_factor(&f, &c, message, &cross[0], &beliefs[0, 0], factor, first, &left[0], &right[0], state, symbol)
            for slot in range(first, f.slot_ptr[factor + 1]):
                weigh_states(&f, &c, message, &cross[0], &beliefs[0, 0], slot, first, state)
                if slot == first and c.cross_ptr[slot] >= 0:
                    # Choose the weights of the first node so that the factor's marginal equals the node's belief.
                    emit(&f, slot, &left[0], &right[0], symbol, state)
                    for a in range(f.n_states[f.slot_node[slot]]):
                        if state[a] > -INFINITY:
                            state[a] = beliefs[f.slot_node[slot], a] - state[a]
                advance(&f, slot, state, symbol, &left[f.position_ptr[slot]],
                        end if is_last(&f, slot) else &left[f.position_ptr[slot + 1]])
            slot = f.slot_ptr[factor + 1] - 1
            n = n_after(&f, slot)
            q = f.leaf_ptr[f.table[factor]]
            total = weigh_leaves(&f, slot, end)
            if total == 0:
                failed = factor
                break
            for a in range(n):
                statistics[q + a] += end[a] / total
    return failed


def factor_excess(
    object layers,  # IN arrays of the model
    object numbers,  # IN counting numbers, without c_sF
    const double[:, ::1] messages,  # IN (n_slots, K) v_ss
    const double[::1] cross,  # IN v_st
    const double[:, ::1] beliefs,  # IN (N, K) logarithms
    double[::1] left,  # OUT (n_positions,)
    double[::1] right,  # OUT (n_positions,)
    double[::1] attained,  # OUT (F,) excess of each factor, averaged over the belief of its first node
    double[::1] most,  # OUT (F,) largest excess of each factor, over all states of all its nodes
    double[::1] work,  # workspace (3 * K,)
):
    """Compute the excess of factors: the next message of a factor minus the message in the beliefs."""
    cdef:
        Layers f
        Numbers c
        Py_ssize_t factor, n_factors = layers.n_factors, slot, a, K, n
        double unit, top, total
        double* state = &work[0]
        double* symbol
        double* excess
        const double* message = &messages[0, 0] if messages.shape[0] else NULL
        const double* belief
    open_layers(layers, &f)
    open_numbers(numbers, &c)
    K = f.n_columns
    symbol = &work[K]
    excess = &work[2 * K]
    with nogil:
        for factor in range(n_factors):
            unit = c.unit * c.own[factor]
            most[factor] = -INFINITY
            read_factor(&f, &c, message, &cross[0], &beliefs[0, 0], factor, -1, &left[0], &right[0], state, symbol)
            for slot in range(f.slot_ptr[factor], f.slot_ptr[factor + 1]):
                belief = &beliefs[f.slot_node[slot], 0]
                n = f.n_states[f.slot_node[slot]]
                emit(&f, slot, &left[0], &right[0], symbol, excess)
                top = -INFINITY
                for a in range(n):
                    # The factor's last message is v_ss plus its share of the belief.
                    excess[a] -= message[slot * K + a] / unit + belief[a]
                    if belief[a] > -INFINITY:
                        most[factor] = max(most[factor], unit * excess[a])
                        top = max(top, excess[a] + belief[a])
                if slot == f.slot_ptr[factor]:
                    total = 1 if f.maximum else 0
                    for a in range(n):
                        if belief[a] > -INFINITY and not f.maximum:
                            total += exp(excess[a] + belief[a] - top)
                    attained[factor] = unit * (top + log(total))
                if not is_last(&f, slot):
                    weigh_states(&f, &c, message, &cross[0], &beliefs[0, 0], slot, slot, state)
                    advance(&f, slot, state, symbol, &left[f.position_ptr[slot]], &left[f.position_ptr[slot + 1]])


# Decoding of labels from the messages of factors, one node at a time.

def decode_factors(
    object layers,  # IN arrays of the model
    const double[:, ::1] node_scores,  # IN (N, K)
    const double[:, ::1] beliefs,  # IN (N, K)
    double[::1] left,  # OUT (n_positions,)
    double[::1] right,  # IN (n_positions,) computed from the messages
    int32_t[::1] labels,  # OUT (N,)
    double[::1] work,  # workspace (4 * K,)
):
    """Assign each node in turn its best state, given the labels of earlier nodes and messages from later nodes.

    If earlier labels forbid all states of a node, it gets the state of its largest belief.
    Return the last such node, or -1 if there is none.
    """
    cdef:
        Layers f
        Py_ssize_t s, i, slot, a, K, best, failed = -1
        double top
        double* state = &work[0]
        double* symbol
        double* message
    open_layers(layers, &f)
    K = f.n_columns
    symbol = &work[K]
    message = &work[3 * K]
    with nogil:
        for s in range(f.n_nodes):
            for a in range(f.n_states[s]):
                state[a] = node_scores[s, a]
            for i in range(f.node_ptr[s], f.node_ptr[s + 1]):
                slot = f.node_slots[i]
                if slot == f.slot_ptr[f.slot_factor[slot]]:
                    begin(&f, slot, &left[0])
                emit(&f, slot, &left[0], &right[0], symbol, message)
                for a in range(f.n_states[s]):
                    state[a] += message[a] / f.scale[f.slot_factor[slot]]
            best = -1
            top = -INFINITY
            for a in range(f.n_states[s]):
                if state[a] > top:
                    top = state[a]
                    best = a
            if best < 0:
                failed = s
                best = 0
                for a in range(f.n_states[s]):
                    if beliefs[s, a] > beliefs[s, best]:
                        best = a
            labels[s] = <int32_t> best
            for a in range(f.n_states[s]):
                state[a] = 0 if a == best else -INFINITY
            for i in range(f.node_ptr[s], f.node_ptr[s + 1]):
                slot = f.node_slots[i]
                if not is_last(&f, slot):
                    advance(&f, slot, state, symbol, &left[f.position_ptr[slot]], &left[f.position_ptr[slot + 1]])
    return failed


# Messages between regions of a relaxation and the larger regions (holders) that contain them.

def region_sweep(
    double[::1] values,  # IN/OUT tables of all regions, a reparameterisation of the score
    const int64_t[::1] table_ptr,  # IN (n_regions + 1,)
    const int32_t[::1] parts,  # IN (P,) regions that are contained in others, in the order of the sweep
    const int64_t[::1] holder_ptr,  # IN (P + 1,) first holder of each part
    const int32_t[::1] holders,  # IN regions that contain a part
    const int64_t[::1] place_ptr,  # IN first entry of each holder in `place`
    const int32_t[::1] place,  # IN cell of the part, for each cell of a holder
    const double[:, ::1] share,  # IN (2, n_holders) share of the part's table that the holder gets, forwards and back
    bint back,  # IN
    double[::1] maxima,  # workspace (cells of the largest part,)
):
    """Move the maxima of holders into the table of each part in turn, and distribute the table among its holders.

    The sum of the maxima of all tables does not increase.
    """
    cdef:
        Py_ssize_t n_parts = parts.shape[0], step, p, j, cell, n_own
        Py_ssize_t own
        double kept
    with nogil:
        for step in range(n_parts):
            p = n_parts - 1 - step if back else step
            own = table_ptr[parts[p]]
            n_own = table_ptr[parts[p] + 1] - own
            for j in range(holder_ptr[p], holder_ptr[p + 1]):
                gather(
                    &values[table_ptr[holders[j]]], table_ptr[holders[j] + 1] - table_ptr[holders[j]],
                    &place[place_ptr[j]], &values[own], n_own, &maxima[0]
                )
            kept = 1
            for j in range(holder_ptr[p], holder_ptr[p + 1]):
                if share[back, j] > 0:
                    kept -= share[back, j]
                    hand_on(
                        &values[table_ptr[holders[j]]], table_ptr[holders[j] + 1] - table_ptr[holders[j]],
                        &place[place_ptr[j]], &values[own], share[back, j]
                    )
            for cell in range(n_own):
                # The part may keep nothing, but forbidden cells remain forbidden.
                if values[own + cell] > -INFINITY:
                    values[own + cell] *= kept


cdef inline void gather(double* holder, Py_ssize_t n_cells, const int32_t* place, double* part, Py_ssize_t n_own,
                        double* maxima) noexcept nogil:
    """Move the maximum of a holder for each cell of its part to the table of the part."""
    cdef Py_ssize_t cell
    for cell in range(n_own):
        maxima[cell] = -INFINITY
    for cell in range(n_cells):
        if holder[cell] > maxima[place[cell]]:
            maxima[place[cell]] = holder[cell]
    for cell in range(n_cells):
        if maxima[place[cell]] > -INFINITY:
            holder[cell] -= maxima[place[cell]]
    for cell in range(n_own):
        part[cell] += maxima[cell]


cdef inline void hand_on(double* holder, Py_ssize_t n_cells, const int32_t* place, const double* part,
                         double share) noexcept nogil:
    cdef Py_ssize_t cell
    for cell in range(n_cells):
        holder[cell] += share * part[place[cell]]
