"""The program of the example: a loop that decodes tokens with two layers of multi-head attention, compiled for the CPU.

Its weights are bfloat16, and each step computes with them in float32, as careful people write it. XLA moves the conversion
out of the loop: for as long as the loop runs, every weight is there a second time, twice as large.

Run as a script it only compiles; where the compiler dumps is for XLA_FLAGS to say.
"""
from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array, lax

LAYERS, MODEL, HEADS, HEAD, POSITIONS, STEPS = 2, 512, 8, 64, 32, 16

Layer = dict[str, Array]
Cache = dict[str, Array]


def attend(x: Array, layer: Layer, cache: Cache, step: Array) -> tuple[Array, Cache]:
    """One layer on one token, with the keys and values of the tokens before it."""
    wide = {name: weight.astype(jnp.float32) for name, weight in layer.items()}
    query, key, value = (jnp.einsum("bd,dhk->bhk", x, wide[name]) for name in ("query", "key", "value"))
    cache = {
        "key": lax.dynamic_update_slice(cache["key"], key[:, None], (0, step, 0, 0)),
        "value": lax.dynamic_update_slice(cache["value"], value[:, None], (0, step, 0, 0)),
    }
    scores = jnp.einsum("bhk,bthk->bht", query, cache["key"]) / HEAD**0.5
    seen = jnp.arange(POSITIONS) <= step
    weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1)
    mixed = jnp.einsum("bht,bthk->bhk", weights, cache["value"])
    return x + jnp.einsum("bhk,hkd->bd", mixed, wide["out"]), cache


def decode(layers: list[Layer], x: Array, caches: list[Cache]) -> tuple[Array, list[Cache]]:
    def one_step(carry: tuple[Array, list[Cache]], step: Array) -> tuple[tuple[Array, list[Cache]], None]:
        x, caches = carry
        updated = []
        for layer, cache in zip(layers, caches):
            x, cache = attend(x, layer, cache, step)
            updated.append(cache)
        return (x, updated), None

    (x, caches), _ = lax.scan(one_step, (x, caches), jnp.arange(STEPS))
    return x, caches


def main() -> None:
    inward = jax.ShapeDtypeStruct((MODEL, HEADS, HEAD), jnp.bfloat16)
    outward = jax.ShapeDtypeStruct((HEADS, HEAD, MODEL), jnp.bfloat16)
    cache = jax.ShapeDtypeStruct((1, POSITIONS, HEADS, HEAD), jnp.float32)
    layers = [{"query": inward, "key": inward, "value": inward, "out": outward} for _ in range(LAYERS)]
    x = jax.ShapeDtypeStruct((1, MODEL), jnp.float32)
    jax.jit(decode).lower(layers, x, [{"key": cache, "value": cache} for _ in range(LAYERS)]).compile()


if __name__ == "__main__":
    main()
