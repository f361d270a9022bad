r"""Triton kernels of attention in a decoding pass, absorbed: queries meet the cached latents themselves.

Keys are cut into SPLITS spans a row; each program softmaxes one span for one group of heads, `gather` joins them.
"""

from __future__ import annotations

import triton
import triton.language as tl

from hymo.kernels.triton_common import dot


@triton.jit
def store(
    y, kv_norm, k_norm, cos, sin, lengths, read, latents, rope_keys, LAST, ROOM, y_m, AT,
    G: tl.constexpr, R: tl.constexpr, P: tl.constexpr, BR: tl.constexpr, BP: tl.constexpr, W: tl.constexpr,
    EPS: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """Append each new token to the caches: its normed latent, and its rope key scaled and rotated for each group."""
    token = tl.program_id(0).to(tl.int64)
    row = token // W
    t = token % W
    past = tl.load(lengths + row)
    fresh = t < tl.load(read + row)
    r = tl.arange(0, BR)
    line = y + token * y_m + AT
    latent = tl.load(line + r, mask=r < R, other=0.0).to(tl.float32)
    latent *= tl.rsqrt(tl.sum(latent * latent, 0) / R + EPS)
    latent *= tl.load(kv_norm + r, mask=r < R, other=0.0).to(tl.float32)
    place = row * ROOM + past + t
    tl.store(latents + place * R + r, latent.to(latents.dtype.element_ty), mask=(r < R) & fresh)
    if P > 0:
        half: tl.constexpr = P // 2
        p = tl.arange(0, BP)
        if SPLIT:
            pair = p % half
            other = tl.where(p < half, p + half, p - half)
            first = p < half
        else:
            pair = p // 2
            other = tl.where(p % 2 == 0, p + 1, p - 1)
            first = p % 2 == 0
        inside = p < P
        position = tl.minimum(past + t, LAST)
        c = tl.load(cos + position * half + pair, mask=inside, other=0.0).to(tl.float32)
        s = tl.load(sin + position * half + pair, mask=inside, other=0.0).to(tl.float32)
        own = tl.load(line + R + p, mask=inside, other=0.0).to(tl.float32)
        partner = tl.load(line + R + other, mask=inside, other=0.0).to(tl.float32)
        for group in tl.static_range(G):
            mine = own * tl.load(k_norm + group * P + p, mask=inside, other=0.0).to(tl.float32)
            theirs = partner * tl.load(k_norm + group * P + other, mask=inside, other=0.0).to(tl.float32)
            turned = mine * c + tl.where(first, -theirs, theirs) * s
            where = rope_keys + (place * G + group) * P + p
            tl.store(where, turned.to(rope_keys.dtype.element_ty), mask=inside & fresh)


@triton.jit
def attend(
    q, scales, wkv_b, cos, sin, lengths, read, latents, rope_keys, sums, tops, shares, LAST, ROOM, FACTOR,
    G: tl.constexpr, J: tl.constexpr, P: tl.constexpr, C: tl.constexpr, V: tl.constexpr, R: tl.constexpr,
    BP: tl.constexpr, BC: tl.constexpr, BR: tl.constexpr, BQ: tl.constexpr, BT: tl.constexpr, W: tl.constexpr,
    SPLITS: tl.constexpr, SPLIT: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """One span of keys of one row and group.

    q (tokens, G * J * (P + C)) before scales and rotation; queries of a group are numbered t * J + j. Out: latents
    weighted by exp(score - top) -> sums (row, G, SPLITS, W * J, R), tops and sums of the weights (shares) beside.
    """
    span = tl.program_id(0)
    group = tl.program_id(1)
    row = tl.program_id(2).to(tl.int64)
    i = tl.arange(0, BQ)
    t = i // J
    j = i % J
    asked = i < W * J
    past = tl.load(lengths + row)
    total = past + tl.load(read + row)
    width: tl.constexpr = P + C
    head = group * J + j
    line = (row * W + t) * (G * J * width) + head * width
    r = tl.arange(0, BR)
    c = tl.arange(0, BC)
    mask = asked[:, None] & (c < C)[None, :]
    content = tl.load(q + line[:, None] + P + c[None, :], mask=mask, other=0.0).to(tl.float32)
    content *= tl.load(scales + head[:, None] * width + P + c[None, :], mask=mask, other=0.0).to(tl.float32)
    weight = wkv_b + (group * (C + V) + c[:, None]) * R + r[None, :]
    to_content = tl.load(weight, mask=(c < C)[:, None] & (r < R)[None, :], other=0.0)
    reach = dot(content, to_content, OPERAND).to(OPERAND)
    p = tl.arange(0, BP)
    if P > 0:
        half: tl.constexpr = P // 2
        if SPLIT:
            pair = p % half
            other = tl.where(p < half, p + half, p - half)
            first = p < half
        else:
            pair = p // 2
            other = tl.where(p % 2 == 0, p + 1, p - 1)
            first = p % 2 == 0
        turn = asked[:, None] & (p < P)[None, :]
        position = tl.minimum(past + t, LAST)
        angle = position[:, None] * half + pair[None, :]
        co = tl.load(cos + angle, mask=turn, other=0.0).to(tl.float32)
        si = tl.load(sin + angle, mask=turn, other=0.0).to(tl.float32)
        own = tl.load(q + line[:, None] + p[None, :], mask=turn, other=0.0).to(tl.float32)
        own *= tl.load(scales + head[:, None] * width + p[None, :], mask=turn, other=0.0).to(tl.float32)
        partner = tl.load(q + line[:, None] + other[None, :], mask=turn, other=0.0).to(tl.float32)
        partner *= tl.load(scales + head[:, None] * width + other[None, :], mask=turn, other=0.0).to(tl.float32)
        turned = (own * co + tl.where(first[None, :], -partner, partner) * si).to(OPERAND)
    each = tl.cdiv(tl.cdiv(total, SPLITS), BT) * BT
    start = span * each
    end = tl.minimum(start + each, total)
    top = tl.full((BQ,), -float("inf"), tl.float32)
    share = tl.zeros((BQ,), tl.float32)
    mixed = tl.zeros((BQ, BR), tl.float32)
    for first_key in range(start, end, BT):
        place = first_key + tl.arange(0, BT)
        held = place < end
        where = row * ROOM + place
        latent = tl.load(
            latents + where[:, None] * R + r[None, :], mask=held[:, None] & (r < R)[None, :], other=0.0
        ).to(OPERAND)
        scores = dot(reach, tl.trans(latent), OPERAND)
        if P > 0:
            keys = tl.load(
                rope_keys + (where[:, None] * G + group) * P + p[None, :],
                mask=held[:, None] & (p < P)[None, :],
                other=0.0,
            )
            scores += dot(turned, tl.trans(keys.to(OPERAND)), OPERAND)
        seen = held[None, :] & (place[None, :] <= past + t[:, None])
        scores = tl.where(seen, scores * FACTOR, -float("inf"))
        highest = tl.maximum(top, tl.max(scores, 1))
        base = tl.where(highest == -float("inf"), 0.0, highest)
        weights = tl.exp(scores - base[:, None])
        fade = tl.exp(top - base)
        share = share * fade + tl.sum(weights, 1)
        mixed = mixed * fade[:, None] + dot(weights, latent, OPERAND)
        top = highest
    slot = ((row * G + group) * SPLITS + span) * (W * J) + i
    tl.store(tops + slot, top, mask=asked)
    tl.store(shares + slot, share, mask=asked)
    tl.store(sums + slot[:, None] * R + r[None, :], mixed, mask=asked[:, None] & (r < R)[None, :])


@triton.jit
def gather(
    sums, tops, shares, wkv_b, o,
    G: tl.constexpr, J: tl.constexpr, C: tl.constexpr, V: tl.constexpr, R: tl.constexpr, BR: tl.constexpr,
    BV: tl.constexpr, BX: tl.constexpr, W: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """Join the spans, turn latents into values: o (tokens, G * J * V). One head of one token, BV values a program."""
    block = tl.program_id(0)
    head = tl.program_id(1)
    token = tl.program_id(2).to(tl.int64)
    row = token // W
    t = token % W
    group = head // J
    x = tl.arange(0, BX)
    r = tl.arange(0, BR)
    v = block * BV + tl.arange(0, BV)
    slot = ((row * G + group) * SPLITS + x) * (W * J) + t * J + head % J
    top = tl.load(tops + slot, mask=x < SPLITS, other=-float("inf"))
    highest = tl.max(top, 0)
    fade = tl.exp(top - tl.where(highest == -float("inf"), 0.0, highest))
    total = tl.sum(fade * tl.load(shares + slot, mask=x < SPLITS, other=0.0), 0)
    parts = tl.load(sums + slot[:, None] * R + r[None, :], mask=(x < SPLITS)[:, None] & (r < R)[None, :], other=0.0)
    mixed = tl.sum(parts * fade[:, None], 0) / tl.maximum(total, 1e-30)
    weight = wkv_b + (group * (C + V) + C + v[:, None]) * R + r[None, :]
    values = tl.load(weight, mask=(v < V)[:, None] & (r < R)[None, :], other=0.0).to(tl.float32)
    out = tl.sum(values * mixed[None, :], 1)
    tl.store(o + token * (G * J * V) + head * V + v, out.to(o.dtype.element_ty), mask=v < V)
