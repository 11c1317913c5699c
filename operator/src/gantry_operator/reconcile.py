"""One pass over one cluster: its objects are applied, the next step is done, the status is written.

Every pass begins with the present answers of the API server and the members, and keeps nothing that it could not read
again, so it may be repeated, missed or interrupted anywhere.  An unchanged object (`drift`) is not applied again, and
an unchanged status is not written: an unchanged cluster costs reads only, one list of each kind.

The failover loops are started first (`following`), so later problems, refusals, pauses and slow answers do not affect
them.  The status names the masters in every case, also for a cluster that is Stalled, paused or being deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from gantry.clock import Clock
from gantry.errors import ConfigError
from gantry.failover.decide import Decision
from gantry_operator import conditions, hakeys, hindrances, observe, plan, status, steps, teardown
from gantry_operator.act import Hands
from gantry_operator.api.brokercluster import LABEL_ROLE, Document, Image, Key
from gantry_operator.conditions import Condition
from gantry_operator.desired import binding, brokers, nameservers, policies
from gantry_operator.doors import Doors
from gantry_operator.drift import leftover, removed_doors
from gantry_operator.events import News
from gantry_operator.following import Followed, Following
from gantry_operator.hindrances import Hindrance
from gantry_operator.kube import KubeError, cluster_path
from gantry_operator.owned import Owned
from gantry_operator.refusals import Refusals, is_refusal
from gantry_operator.settings import Settings
from gantry_operator.snapshot import GroupSeen, Snapshot
from gantry_operator.telling import Telling
from gantry_operator.turns import Turns, not_held

SOON_S, LATER_S = 2.0, 60.0
NOT_FOUND = 404


class Objects(Protocol):
    """The part of `kube.Kube` that is used here."""

    async def get(self, path: str) -> Document | None: ...
    async def listed(self, folder: str, labels: Mapping[str, str]) -> list[Document]: ...
    async def create(self, document: Document) -> bool: ...
    async def apply(self, document: Document) -> Document: ...
    async def merge(self, path: str, change: Document) -> None: ...
    async def delete(self, path: str, uid: str) -> None: ...


class FailoverLoops(Protocol):
    """The part of `watching.Watches` that is used here."""

    def expect(self, key: Key) -> None: ...
    def keep(self, snapshot: Snapshot, key: bytes) -> None: ...
    def key_of(self, key: Key) -> bytes | None: ...
    def unwatched(self, key: Key) -> dict[str, str]: ...
    def last(self, key: Key, group: str) -> Decision | None: ...
    def news(self, key: Key) -> list[tuple[str, Decision]]: ...
    def forget(self, key: Key) -> None: ...
    async def forget_disk(self, seen: GroupSeen, ordinal: int) -> str: ...


class Reconciler:
    """Passes over clusters.  `refused` is called with the HTTP status of refusals that do not make the pass fail.
    """

    def __init__(
        self,
        kube: Objects,
        settings: Settings,
        watches: FailoverLoops,
        asks: observe.Asks,
        clock: Clock,
        refused: Callable[[int], None] = lambda status: None,
    ) -> None:
        self._kube = kube
        self._settings = settings
        self._asks = asks
        self._clock = clock
        self._refused = refused
        self._following = Following(kube, watches, makes=True)
        self._hands = Hands(kube, asks, watches, clock)
        self._owned = Owned(kube)
        self._doors = Doors(kube)
        self._telling = Telling(kube, watches, clock)
        self._turns = Turns(kube, settings)

    async def once(self, key: Key) -> float | None:
        """Run one pass; return in how many seconds the next one is due, None when the cluster does not exist."""
        found = await self._kube.get(cluster_path(key))
        if found is None:
            for each in (self._following, self._owned, self._doors, self._hands, self._telling):
                each.forget(key)
            return None
        followed = await self._following.start_loops(key, found)
        snapshot = self._with_denied(followed.snapshot)
        if snapshot.cluster.is_going:
            return await self._end(followed, snapshot, found)
        self._count(followed.listed.failed)
        refusals = Refusals(self._refused)
        await self._label(snapshot, refusals)
        if followed.reading.faults:
            return await self._stall(snapshot, [*followed.hindrances, *hindrances.of_refusals(refusals)])
        snapshot = replace(snapshot, cluster=await self._turns.resolved(snapshot.cluster, found))
        snapshot = _of_cluster(snapshot)
        try:
            brokers.as_run(next(snapshot.cluster.groups()))
        except ConfigError as error:
            return await self._stall(snapshot, [Hindrance("Refused", f"{error}; nothing is changed")])
        try:
            absent = await observe.missing_secrets(self._kube, snapshot.cluster)
            snapshot = replace(snapshot, missing_secrets=absent)
        except KubeError as error:
            refusals.add("a Secret of spec.imagePullSecrets", error)
        snapshot, news = await self._put(snapshot, found, refusals, has_key=followed.key.key is not None)
        return await self._go_on(followed, snapshot, refusals, news)

    async def failed(self, key: Key, error: Exception) -> None:
        """Write the status after a failed pass: the present masters, and the failure if users have to do something
        about it.
        """
        found = await self._kube.get(cluster_path(key))
        if found is None:
            return
        snapshot = (await self._following.start_loops(key, found)).snapshot
        said: list[Condition] = []
        if isinstance(error, KubeError) and is_refusal(error):
            said = status.stalled("Refused", f"the API server refuses {error}; a failover loop goes on")
        elif isinstance(error, KubeError | TimeoutError):
            if snapshot.cluster.generation != snapshot.cluster.status.get("observedGeneration"):
                said = [Condition("Reconciling", True, "PassFailed", f"it is tried again: {error}")]
        else:
            text = f"the operator failed at this cluster ({error!r}) and tries again; its log has the traceback"
            said = status.stalled("PassFailed", f"{text}; a failover loop goes on")
        await self._telling.live(snapshot, said)

    async def _end(self, followed: Followed, snapshot: Snapshot, found: Document) -> float | None:
        """Run one round of a cluster's deletion; failover loops go on until no broker's pod is left."""
        cluster, listed = snapshot.cluster, followed.listed
        if not followed.listed.has_brokers:
            self._following.forget(cluster.key)
        if not cluster.has_finalizer:
            pods = list(listed.of("Pod").values())
            said = teardown.waits_for(pods) if pods else "it waits for the finalizers of others"
        elif followed.reading.faults:
            said = f"its volumes stay until its specification can be read: {followed.reading.message}"
        elif not cluster.drops_claims:
            await teardown.mark(self._kube, cluster, found, False)
            return LATER_S
        else:
            said = await teardown.clear(self._kube, cluster, found)
            if not said:
                return LATER_S
        is_told = await self._telling.live(snapshot, status.going(said))
        return LATER_S if is_told and not (cluster.has_finalizer and cluster.drops_claims) else SOON_S

    async def _stall(self, snapshot: Snapshot, found: list[Hindrance]) -> float:
        """Change nothing; write the hindrances and the present masters into the status."""
        message = "; ".join(each.message for each in found)
        is_told = await self._telling.live(snapshot, status.stalled(found[0].reason, message))
        return LATER_S if is_told else SOON_S

    async def _go_on(self, followed: Followed, snapshot: Snapshot, refusals: Refusals, repaired: list[News]) -> float:
        """Do the next step and write the status; return in how many seconds the next pass is due."""
        key, cluster, image = followed.key, snapshot.cluster, self._image(snapshot)
        if key.key is not None:
            snapshot = await observe.answers(self._asks, snapshot, key.key, self._clock.now_ms() / 1000)
        found = [*followed.hindrances, *hakeys.replaced(key, snapshot), *hindrances.of_refusals(refusals)]
        found += hindrances.of_doors(snapshot)
        if snapshot.unseen & {"Pod", "StatefulSet"}:
            is_told = await self._tell_unseen(snapshot, found)
            self._raise_silent(followed)
            return LATER_S if is_told else SOON_S
        step = self._step(snapshot, found)
        told_of = hindrances.applied(
            conditions.conditions(snapshot, image.name, self._clock.now_ms() / 1000, step), found
        )  # fmt: skip
        if refusals.failed:
            told_of = status.not_applied(told_of, refusals.failure)
        told = status.status_of(snapshot, told_of, self._telling.now)
        is_told, news, unwritten = False, list(repaired), None
        try:
            is_told = await self._telling.tell(cluster.key, cluster.status, told)
        except KubeError as error:
            unwritten = error  # the step is done all the same
        if step is not None and key.key is not None:
            done = await self._hands.carry_out(cluster, step, key.key, image)
            news += [done] if done is not None else []
        await self._telling.record(cluster, told if is_told else None, news)
        self._raise_silent(followed)
        for undone in filter(None, [unwritten, *refusals.failed.values()]):
            raise undone
        is_waiting = (found or cluster.wishes.is_paused) and (step is None or isinstance(step, steps.Hold))
        if not is_told:
            return SOON_S
        if is_waiting or status.is_settled(told):
            return LATER_S
        if status.waits_for_people(told):  # for the next order that was refused and may be given again
            return max(SOON_S, self._hands.due_s(cluster.key, LATER_S))
        return SOON_S

    def _step(self, snapshot: Snapshot, found: list[Hindrance]) -> steps.Step | None:
        """Return the plan's next step; while something is not known, no member is taken away."""
        cluster = snapshot.cluster
        if cluster.wishes.is_paused:
            return None
        needed = {"Lease", "PersistentVolumeClaim"} if cluster.drops_claims else {"Lease"}
        step = plan.next_step(snapshot)
        held = next((each for each in found if each.holds), None)
        if step is not None and (held is not None or snapshot.unseen & needed):
            why = f"the Secret {cluster.secret} can be used" if held else "everything can be listed"
            return steps.Hold(f"no member is changed until {why}")
        if isinstance(step, steps.Resize) and any(each.reason == "Refused" for each in found):
            return steps.Hold(f"{step.group.group.short}: its set is resized when nothing is refused any more")
        return step

    async def _tell_unseen(self, snapshot: Snapshot, found: list[Hindrance]) -> bool:
        """Write a status without pods or sets that could not be listed: what depends on them keeps its last values."""
        kinds = ", ".join(sorted(snapshot.unseen))
        said = status.stalled(found[0].reason, "; ".join(each.message for each in found)) if found else []
        said = said or [Condition("Reconciling", True, "NotRead", f"not listed now, and asked for again: {kinds}")]
        return await self._telling.live(snapshot, said)

    def _count(self, failed: Mapping[str, KubeError]) -> None:
        """Count lists that were refused; the pass does not fail because of them."""
        for error in filter(is_refusal, failed.values()):
            self._refused(error.status)

    def _raise_silent(self, followed: Followed) -> None:
        """Raise the error of a request that the API server did not answer, so that the pass is repeated."""
        if followed.key.error is not None:
            raise followed.key.error
        for error in followed.listed.failed.values():
            if not is_refusal(error):
                raise error

    def _with_denied(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with the orders that members refused."""
        key = snapshot.cluster.key
        groups = [replace(each, denied=self._hands.denied(key, each.group.short)) for each in snapshot.groups]
        return replace(snapshot, groups=groups)

    async def _put(
        self, snapshot: Snapshot, found: Document, refusals: Refusals, has_key: bool
    ) -> tuple[Snapshot, list[News]]:
        """Apply the objects that differ; refused ones go to `refusals`.  While paused, only name them."""
        cluster = snapshot.cluster
        there = await self._owned.look(cluster, snapshot.sets.values(), [binding.name_of(cluster)])
        doors = await self._doors.look(cluster, there, refusals)
        there, snapshot = {**there, **doors.there}, replace(snapshot, doors=doors.seen)
        wanted = [*self._wanted(snapshot, has_key), *self._doors.wanted(cluster, self._image(snapshot), doors)]
        differing = self._owned.differences(wanted, there)
        if cluster.wishes.is_paused:
            names = sorted(each.name for batch in differing for each in batch)
            return replace(snapshot, unapplied=names), []
        if cluster.drops_claims is not cluster.has_finalizer:
            try:
                await teardown.mark(self._kube, cluster, found, cluster.drops_claims)
            except KubeError as error:
                refusals.add(f"the finalizer of {cluster.key.name}", error)
        outcome = await self._owned.put(not_held(cluster, differing), refusals)
        snapshot = observe.with_sets(snapshot, outcome.applied)
        if not snapshot.unseen & {"Pod", "StatefulSet"}:
            await self._owned.remove(leftover(wanted, there, snapshot), there, refusals)
        await self._owned.remove(removed_doors(there, cluster), there, refusals)
        return snapshot, outcome.news()

    def _wanted(self, snapshot: Snapshot, has_key: bool) -> list[list[Document]]:
        """Return the wanted objects in batches; objects that a set needs come before it."""
        cluster, image = snapshot.cluster, self._image(snapshot)
        batches = [policies.objects(cluster, self._settings.home), binding.objects(cluster)]
        batches.append(nameservers.objects(cluster, image))
        for seen in snapshot.groups:
            shape = brokers.Shape(seen.set_replicas, brokers.rolled(cluster.wishes.roll, seen.set_roll))
            objects = brokers.objects(seen.group, image, shape)
            # Pods that are made before their key would be taken for brokers that run with a lost one.
            batches.append([each for each in objects if has_key or each["kind"] != "StatefulSet"])
        if "StatefulSet" in snapshot.unseen:  # how many members a set has, and which values it follows, is not known
            return [[each for each in batch if each["kind"] != "StatefulSet"] for batch in batches]
        return batches

    async def _label(self, snapshot: Snapshot, refusals: Refusals) -> None:
        """Label pods with their role, for `kubectl get pods -L`; no decision depends on the label."""
        folder = f"/api/v1/namespaces/{snapshot.cluster.key.namespace}/pods"
        for group in snapshot.groups if "Lease" not in snapshot.unseen else ():
            for pod, role in group.roles().items():
                if group.pods[pod].role == role:
                    continue
                try:
                    await self._kube.merge(f"{folder}/{pod}", {"metadata": {"labels": {LABEL_ROLE: role}}})
                except KubeError as error:
                    if error.status != NOT_FOUND:  # it went since it was listed, as in a handover
                        refusals.add(f"the label {LABEL_ROLE} of Pod {pod}", error)

    def _image(self, snapshot: Snapshot) -> Image:
        return replace(snapshot.cluster.image, volume_group=self._settings.volume_group)


def _of_cluster(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with its own cluster in every group: the image was decided meanwhile."""
    groups = [replace(each, group=replace(each.group, cluster=snapshot.cluster)) for each in snapshot.groups]
    return replace(snapshot, groups=groups)
