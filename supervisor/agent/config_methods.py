"""Handlers of `config/*` (chapter 70 §16).

Every writer goes the same way: lock, authority now, staging, one check of the whole, one save,
publication. Reading shows display text and never a secret.

Failure: RpcError with the texts of chapter 70 §16.3 and §16.4; nothing was saved then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ipc.agent_envelope import AgentCode, agent_error
from ipc.agent_methods import (
    ConfigDeleteParams,
    ConfigDeleteResult,
    ConfigEntry,
    ConfigGetParams,
    ConfigGetResult,
    ConfigListParams,
    ConfigListResult,
    ConfigReloadResult,
    ConfigSetManyParams,
    ConfigSetManyResult,
    ConfigSetParams,
    ConfigSetResult,
    ConfigValidateResult,
    MapKeyCreateResult,
    MapKeyDeleteResult,
    MapKeyParams,
    MapKeysParams,
    MapKeysResult,
)
from ipc.agent_params import NoParams, invalid_params
from ipc.jsonrpc import RpcError
from supervisor.agent.config_schema import (
    MAP_SECTIONS,
    MASK,
    PROPS,
    Prop,
    UnknownProp,
    ValueRefused,
    check_key,
    coerce,
    display,
    find,
    split,
)
from supervisor.agent.config_store import Candidate
from supervisor.agent.identity import config_forbidden
from supervisor.agent.limits import SETS_MAX
from supervisor.agent.settings import Violation

if TYPE_CHECKING:
    from supervisor.agent.call import AgentCall

_MASKED_INPUTS: Final = ("***MASKED***", "****", "")


# --- reading -------------------------------------------------------------------------------------


def get(call: AgentCall, params: ConfigGetParams) -> ConfigGetResult:
    config = call.endpoint.config
    if params.prop is None:
        return ConfigGetResult(masked_tree(config.effective))
    parts, prop = _find(params.prop)
    value = config.value(parts)
    shown = prop.default if value is None and not prop.secret else value
    return ConfigGetResult(display(prop, shown), params.prop, prop.secret and value is not None)


def masked_tree(tree: dict[str, Any], place: str = "") -> dict[str, Any]:
    """The tree with every secret behind its mask."""
    shown: dict[str, Any] = {}
    for name, value in tree.items():
        path = f"{place}.{name}" if place else name
        try:
            secret = find(path)[1].secret
        except UnknownProp:
            secret = False
        if secret:
            shown[name] = MASK
        elif type(value) is dict:
            shown[name] = masked_tree(value, path)
        else:
            shown[name] = value
    return shown


def list_props(call: AgentCall, params: ConfigListParams) -> ConfigListResult:
    config = call.endpoint.config
    entries: list[ConfigEntry] = []
    for prop in PROPS.values():
        section, _, rest = prop.path.partition(".")
        keys = config.keys(section) if section in MAP_SECTIONS else [None]
        for key in keys:
            path = prop.path if key is None else f"{section}.{key}.{rest.removeprefix('*.')}"
            if params.prefix and not path.startswith(params.prefix):
                continue
            value = config.value(split(path))
            shown = prop.default if value is None and not prop.secret else value
            entries.append(
                ConfigEntry(
                    path=path,
                    category=section,
                    kind=prop.kind,
                    type_hint=prop.hint,
                    populated=value is not None,
                    is_secret=prop.secret,
                    is_env_overridden=path in config.overridden,
                    description=prop.description,
                    value=None if shown is None else display(prop, shown),
                    enum_variants=list(prop.variants) or None,
                    section=section if key is None else f"{section}.{key}",
                )
            )
    return ConfigListResult(sorted(entries, key=lambda entry: entry.path))


def map_keys(call: AgentCall, params: MapKeysParams) -> MapKeysResult:
    if params.path not in MAP_SECTIONS:
        raise invalid_params(f"{params.path}: not a map section", field="path")
    return MapKeysResult(params.path, call.endpoint.config.keys(params.path))


def validate(call: AgentCall, _params: NoParams) -> ConfigValidateResult:
    error = call.endpoint.config.validate()
    return ConfigValidateResult(error is None, error)


def reload(call: AgentCall, _params: NoParams) -> ConfigReloadResult:
    if not call.endpoint.reload_soon():
        raise agent_error(AgentCode.INTERNAL_ERROR, "Reload not available", "reload_unavailable")
    return ConfigReloadResult(True)


# --- writing -------------------------------------------------------------------------------------


async def set_prop(call: AgentCall, params: ConfigSetParams) -> ConfigSetResult:
    def stage(candidate: Candidate) -> None:
        _stage(candidate, params.prop, params.value, params.comment)

    await _write(call, [params.prop], stage)
    return ConfigSetResult(params.prop, True)


async def set_many(call: AgentCall, params: ConfigSetManyParams) -> ConfigSetManyResult:
    sets = params.sets
    if not sets:
        raise invalid_params("config/set-many requires at least one entry in `sets`")
    if len(sets) > SETS_MAX:
        raise invalid_params(f"config/set-many accepts at most {SETS_MAX} entries; got {len(sets)}")

    def stage(candidate: Candidate) -> None:
        for index, entry in enumerate(sets):
            try:
                _stage(candidate, entry.prop, entry.value, None)
            except RpcError as error:
                raise _entry_error(index, entry.prop, error) from None
            except (UnknownProp, ValueRefused) as error:
                raise _entry_error(index, entry.prop, invalid_params(str(error))) from None

    await _write(call, [entry.prop for entry in sets], stage, batch=True)
    return ConfigSetManyResult([entry.prop for entry in sets], True)


def _entry_error(index: int, prop: str, error: Any) -> RpcError:
    return agent_error(
        error.code,
        f"entry {index} (`{prop}`) in config/set-many rejected; nothing saved: {error.message}",
        error.kind,
        index=index,
        prop=prop,
    )


async def delete(call: AgentCall, params: ConfigDeleteParams) -> ConfigDeleteResult:
    deleted = False

    def stage(candidate: Candidate) -> None:
        nonlocal deleted
        parts = _parts(params.prop)
        whole_key = len(parts) == 2 and parts[0] in MAP_SECTIONS
        if not whole_key:
            find(params.prop)
        deleted = candidate.reset(parts)
        if whole_key and not deleted:
            raise UnknownProp(params.prop)

    await _write(call, [params.prop], stage)
    return ConfigDeleteResult(params.prop, True)


async def map_key_create(call: AgentCall, params: MapKeyParams) -> MapKeyCreateResult:
    _check_map(params)
    created = False

    def stage(candidate: Candidate) -> None:
        nonlocal created
        check_key(params.path, params.key)
        created = candidate.create(params.path, params.key)

    await _write(call, [f"{params.path}.{params.key}"], stage)
    return MapKeyCreateResult(params.path, params.key, created)


async def map_key_delete(call: AgentCall, params: MapKeyParams) -> MapKeyDeleteResult:
    _check_map(params)
    deleted = False

    def stage(candidate: Candidate) -> None:
        nonlocal deleted
        deleted = candidate.reset((params.path, params.key))

    await _write(call, [f"{params.path}.{params.key}"], stage)
    return MapKeyDeleteResult(params.path, params.key, deleted)


def _check_map(params: MapKeyParams) -> None:
    if params.path not in MAP_SECTIONS:
        raise invalid_params(f"{params.path}: not a map section", field="path")


async def _write(
    call: AgentCall,
    paths: list[str],
    stage: Callable[[Candidate], None],
    *,
    batch: bool = False,
) -> None:
    """Lock, authorise all paths now, stage, check, save, publish. Raises RpcError."""
    endpoint, config = call.endpoint, call.endpoint.config
    async with config.lock.exclusive():
        access = endpoint.recheck(call)
        for index, path in enumerate(paths):
            if not access.may_write(_canonical(path)):
                error = config_forbidden(path, index if batch else None)
                endpoint.audit_denial(call.binding, call.connection, call.method, error)
                raise error
        candidate = config.stage()
        try:
            stage(candidate)
            await config.commit(candidate)
        except (UnknownProp, ValueRefused) as error:
            raise invalid_params(str(error), field=paths[0]) from None
        except Violation as error:
            raise _invalid(error) from None
        except OSError as error:
            raise agent_error(
                AgentCode.INTERNAL_ERROR,
                f"Config save failed: {error.strerror or error}",
                "store_failed",
            ) from None
    endpoint.config_changed()


def _invalid(violation: Violation) -> Exception:
    text = str(violation)
    if violation.authorization:
        text = f"Authorization config rejected; nothing was saved: {text}"
    return invalid_params(text)


def _canonical(path: str) -> str:
    try:
        return ".".join(split(path))
    except UnknownProp:
        return path


def _parts(path: str) -> tuple[str, ...]:
    try:
        return split(path)
    except UnknownProp as error:
        raise invalid_params(str(error), field="prop") from None


def _find(path: str) -> tuple[tuple[str, ...], Prop]:
    try:
        return find(path)
    except UnknownProp as error:
        raise invalid_params(str(error), field="prop") from None


def _stage(candidate: Candidate, path: str, raw: msgspec.Raw, comment: str | None) -> None:
    """Put one value on the candidate. Raises RpcError, UnknownProp or ValueRefused."""
    parts, prop = find(path)
    if parts[0] in MAP_SECTIONS:
        check_key(parts[0], parts[1])
    try:
        value = msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise ValueRefused(f"{path}: {error}") from None
    if value is None:
        candidate.reset(parts)
        return
    if prop.secret and type(value) is str and value.strip() in _MASKED_INPUTS:
        raise ValueRefused(f"Refusing to overwrite secret `{path}` with a masked or empty value")
    candidate.set(parts, coerce(prop, path, value), comment)
