"""Plays: a script of what happens to a group, and what everybody said, side by side in one file.

    kill 0                  a command, or several
    ----
    register: epoch 2 Sealed, in sync 0.0 1.0 2.0
    register: epoch 2 Active, 1.0 leads, in sync 1.0 2.0
    member 1 leads in epoch 2

Paragraphs are separated by empty lines; what stands behind the dashes is the trace: every change of the register, who
begins to lead, what coordinators decide (waiting aside), what producers and readers are told.  `#` begins a comment.
The brokers are real, on the simulation's loops, disks and network, with the fast timers: suspicion after 2 s, a lease
of 6 s, a renewal each second.  No times stand in a trace, and nobody's random name.

    group members=3 policy=SYNC_MASTER min_in_sync=2 flush=SYNC_FLUSH coordinators=1    first of all; nobody runs yet
    start [WHO ...]         members by number, `coordinator`, `coordinator2`; everybody without names
    kill | stop | pause | power | wipe WHO ...      as in `member`; `power` and `wipe` take the process along
    disk WHO full BYTES     so much is left on it;  disk WHO hangs: nothing on it ends;  disk WHO syncs SECONDS: so
                            long each sync of the log takes;  disk WHO well: none of this any more
    cut WHO from WHO ...    both ways; `register`, `names` and `clients` have places in the network too;  heal: all ways
    route                   what the name server says to a client that reaches it: brokerIds with members
    register off | on | delete | back               `back`: to the first record in which somebody led
    dies at STEP            the coordinator, see `watching.STEPS`
    opens WHO ... SECONDS   from now on a store takes so long to open;  begins WHO ... SECONDS: any life of a broker
    room WHO BYTES          so much is left on its disk;  room WHO: as much as it wants
    wait SECONDS            of virtual time;  until TEXT: until that stands in the trace, at most 60 s
    settle                  until somebody leads whose messages are acknowledged by all who are connected; at most 60 s
    handover TARGET         asked of who leads;  clone WHO: asked of a member
    expire                  all files are older by the days of retention, at everybody's; what is old enough goes
    send, read and more     what clients and administrators say: `simulation.playtalk`

    python -m simulation.groupplay FILE ...           compare;  --write: write the traces again
"""

from __future__ import annotations

import difflib
import json
import logging
import os
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

from gantry.failover.decide import Wait
from gantry.leaves.frames import Command
from gantry.replication import haapi
from gantry.replication.record import RegisterRecord
from gantry.wire.codes import RequestCode
from simulation.clients import Client
from simulation.groupmember import GroupMember
from simulation.groupworld import NAME_SERVER, NAME_SERVER_PORT, GroupWorld, Shape
from simulation.playtalk import CLIENT, READER, PlayTalk
from simulation.register import HOST as REGISTER
from simulation.register import Troubles
from simulation.routes import Always
from simulation.world import World

_PATIENCE_S = 60.0
_RETENTION_MS = 73 * 3_600_000  # an hour more than segments are kept
_DROPPING_S = 30.0  # several passes, which look at the disk every few seconds
_DASHES = "----"
_ASKER, _TOPIC = "10.0.9.7", "SELF_TEST_TOPIC"
_PROCESS = re.compile(r"/[0-9a-f]{8}\b")
_UID = re.compile(r"\b[0-9a-f]{32}\b")


class GroupPlay:
    """One play; `lines` is the trace since they were taken."""

    def __init__(self) -> None:
        self.world = World(1)
        self.lines: list[str] = []
        self._commands: dict[str, Callable[[list[str]], None]] = {
            name.removeprefix("_do_"): getattr(self, name) for name in dir(self) if name.startswith("_do_")
        }
        self._group: GroupWorld | None = None

    def do(self, line: str) -> None:
        """One command; ValueError for what is none."""
        name, *words = line.split()
        if name not in self._commands:
            raise ValueError(f"{name!r} is no command; there are {', '.join(sorted(self._commands))}")
        self._commands[name](words)
        if self.world.problems:
            raise AssertionError(self.world.problems[0])

    @property
    def group(self) -> GroupWorld:
        """What the first command made."""
        assert self._group is not None, "a play begins with `group`"
        return self._group

    def say(self, text: str) -> None:
        """A line of the trace."""
        self.lines.append(_without_names(text))

    # -- commands

    def _do_group(self, words: list[str]) -> None:
        given = {"members": "3", "policy": "SYNC_MASTER", "min_in_sync": "2", "flush": "SYNC_FLUSH"}
        given |= {"coordinators": "1"} | dict(word.split("=") for word in words)
        shape = Shape(
            int(given["members"]),
            given["policy"] == "SYNC_MASTER",
            int(given["min_in_sync"]),
            given["flush"] == "SYNC_FLUSH",
            int(given["coordinators"]),
            knows_gone=False,
        )
        group = self._group = GroupWorld(self.world, shape)
        group.service.on_change.append(self._changed)
        for member in group.members:
            member.on_life.append(lambda member, broker: self._lives(member))
        for number, watcher in enumerate(group.watchers):
            name = "coordinator" if number == 0 else f"coordinator {number + 1}"
            watcher.tell = lambda decision, name=name: self._decided(name, decision)  # type: ignore[misc]
        talk = PlayTalk(self.world, group, self.say, self._until)
        self._commands |= talk.commands

    def _do_start(self, words: list[str]) -> None:
        group = self.group
        if not words:
            for server in group.name_servers:
                server.start()
            for member in group.members:
                member.start()
            self._run(1.0)
            for watcher in group.watchers:
                watcher.start()
        for word in words:
            if word.startswith("coordinator"):
                group.watchers[int(word.removeprefix("coordinator") or "1") - 1].start()
            else:
                group.members[int(word)].start()
        self._run(1.0)

    def _do_kill(self, words: list[str]) -> None:
        for word in words:
            if word.startswith("coordinator"):
                self.group.watchers[int(word.removeprefix("coordinator") or "1") - 1].kill()
            else:
                self.group.members[int(word)].kill()

    def _do_stop(self, words: list[str]) -> None:
        for member in self._members(words):
            member.stop(for_good=True)
        self._run(1.0)

    def _do_pause(self, words: list[str]) -> None:
        for member in self._members(words[:-1]):
            member.pause(float(words[-1]))

    def _do_power(self, words: list[str]) -> None:
        for member in self._members(words):
            member.cut_power()

    def _do_wipe(self, words: list[str]) -> None:
        for member in self._members(words):
            member.wipe()

    def _do_disk(self, words: list[str]) -> None:
        (member,) = self._members(words[:1])
        match words[1:]:
            case ["full", room]:
                member.fill_disk(int(room))
            case ["hangs"]:
                member.hang_disk()
            case ["syncs", seconds]:
                member.delay_disk(float(seconds), 0.0)
            case ["well"]:
                member.make_room()
                member.calm()
            case other:
                raise ValueError(f"disk {other}; expected full BYTES, hangs, syncs SECONDS or well")

    def _do_cut(self, words: list[str]) -> None:
        at = words.index("from")
        for one in self._hosts(words[:at]):
            for other in self._hosts(words[at + 1 :]):
                self.group.network.cut(one, other)
                self.group.network.cut(other, one)

    def _do_route(self, words: list[str]) -> None:
        del words
        client = Client(self.world, self.group.network, _ASKER, Always(f"{NAME_SERVER}:{NAME_SERVER_PORT}"))
        members = {each.address: each.ordinal for each in self.group.members}

        async def main() -> None:
            answer = await client.ask(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext={"topic": _TOPIC}))
            if answer is None or answer.code:
                self.say("route: none")
                return
            for broker in json.loads(bytes(answer.body))["brokerDatas"]:
                ids = sorted(broker["brokerAddrs"].items())
                self.say("route: " + ", ".join(f"{id_} is member {members[address]}" for id_, address in ids))

        client.run(main)
        self._run(1.0)

    def _do_heal(self, words: list[str]) -> None:
        del words
        self.group.network.heal()

    def _do_register(self, words: list[str]) -> None:
        service = self.group.service
        match words[0]:
            case "off":
                service.troubles = Troubles(refused=1.0)
            case "on":
                service.troubles = Troubles()
            case "delete":
                service.delete()
            case "back":
                service.set_back(next(record for record in service.past if record.holder is not None))
            case other:
                raise ValueError(f"register {other!r}; expected off, on, delete or back")

    def _do_opens(self, words: list[str]) -> None:
        for member in self._members(words[:-1]):
            member.delays.opening_s = float(words[-1])

    def _do_begins(self, words: list[str]) -> None:
        for member in self._members(words[:-1]):
            member.delays.begin_s = float(words[-1])

    def _do_room(self, words: list[str]) -> None:
        member = self.group.members[int(words[0])]
        if len(words) > 1:
            member.fill_disk(int(words[1]))
        else:
            member.make_room()

    def _do_dies(self, words: list[str]) -> None:
        self.group.watchers[0].dies_at = words[1]

    def _do_wait(self, words: list[str]) -> None:
        self._run(float(words[0]))

    def _do_until(self, words: list[str]) -> None:
        text = " ".join(words)
        if not self._until(lambda: any(text in line for line in self.lines)):
            self.say(f"{text!r} was waited for in vain")

    def _do_settle(self, words: list[str]) -> None:
        del words
        if not self._until(self._is_settled):
            self.say("nobody leads whose log everybody has")
        self._run(1.0)

    def _do_handover(self, words: list[str]) -> None:
        leader = self.group.leader()
        assert leader is not None, "nobody leads"
        leader.order(haapi.HANDOVER, self.say, target=int(words[0]), deadlineMs=2000)
        self._run(2.0)

    def _do_clone(self, words: list[str]) -> None:
        for member in self._members(words):
            member.order(haapi.CLONE, self.say)
        self._run(1.0)

    def _do_expire(self, words: list[str]) -> None:
        del words
        for member in self.group.members:
            member.disk.age_files(_RETENTION_MS)
            broker = member.broker
            if broker is not None and broker.parts is not None:
                broker.parts.store.retention.drop_expired()
        self._run(_DROPPING_S)

    # -- within

    def _members(self, words: list[str]) -> list[GroupMember]:
        return [self.group.members[int(word)] for word in words]

    def _hosts(self, words: list[str]) -> list[str]:
        known = {"register": [REGISTER], "clients": [CLIENT, READER], "names": [NAME_SERVER]}
        known |= {"coordinator": [watcher.host for watcher in self.group.watchers]}
        known |= {str(member.ordinal): [member.host] for member in self.group.members}
        return [host for word in words for host in known[word]]

    def _run(self, seconds: float) -> None:
        self.world.run(self.world.now + seconds)

    def _until(self, is_so: Callable[[], bool]) -> bool:
        return self.world.run(self.world.now + _PATIENCE_S, is_so)

    def _is_settled(self) -> bool:
        leader, record = self.group.leader(), self.group.service.record
        fencing = leader.fencing if leader is not None else None
        if leader is None or record is None or fencing is None or not leader.is_serving:
            return False
        state = fencing.state()
        up = [member for member in self.group.members if member.is_alive]
        are_in = {member.ordinal for member in record.in_sync} >= {member.ordinal for member in up}
        is_writable = state.is_writable and state.epoch == record.epoch and not fencing.more()["refusing"]
        return is_writable and are_in and all(member.confirmed == leader.confirmed for member in up)

    # -- what is told

    def _changed(self, how: str, before: RegisterRecord | None, record: RegisterRecord | None) -> None:
        if record is None:
            self.say("register: deleted")
        elif before is None or how == "restored" or _said(before) != _said(record):
            self.say(f"register: {'set back, ' if how == 'restored' else ''}{_said(record)}")

    def _lives(self, member: GroupMember) -> None:
        broker = member.broker
        fencing = broker.member_lifecycle.fencing if broker is not None else None
        if fencing is not None and fencing.state().role.value == "master":
            self.say(f"member {member.ordinal} leads in epoch {fencing.state().epoch}")

    def _decided(self, name: str, decision: object) -> None:
        if not isinstance(decision, Wait):
            reason = getattr(decision, "reason", "")
            told = _without_names(f"{name}: {type(decision).__name__}{f': {reason}' if reason else ''}")
            # Of two coordinators that decide at once either may be first; they are told in the order of their names.
            at = len(self.lines)
            while at and self.lines[at - 1].startswith("coordinator") and self.lines[at - 1].partition(":")[0] > name:
                at -= 1
            self.lines.insert(at, told)


def _without_names(text: str) -> str:
    """The text without what each process draws by chance."""
    return _UID.sub("", _PROCESS.sub("", text))


def _said(record: RegisterRecord) -> str:
    leads = f"{record.holder.member} leads" if record.holder is not None else "nobody leads"
    in_sync = " ".join(str(member) for member in sorted(record.in_sync))
    return f"epoch {record.epoch} {record.phase.value}, {leads}, in sync {in_sync or '-'}"


def played(source: str) -> str:
    """The same file, with the trace as it is."""
    play, out = GroupPlay(), []
    for paragraph in re.split(r"\n\s*\n", source.strip()):
        script = paragraph.partition(f"\n{_DASHES}")[0]
        out.append(script)
        commands = [line for line in script.splitlines() if line.strip() and not line.startswith("#")]
        for command in commands:
            play.do(command)
        if commands:
            out += [_DASHES, *(play.lines or ["nothing is said"])]
        play.lines = []
        out.append("")
    return "\n".join(out).rstrip() + "\n"


def main(arguments: list[str]) -> int:
    """The command."""
    logging.basicConfig(level=logging.CRITICAL + 1)
    sys.unraisablehook = lambda unraisable: None
    warnings.simplefilter("ignore", RuntimeWarning)
    is_red = False
    for name in [one for one in arguments if one != "--write"]:
        path = Path(name)
        before = path.read_text(encoding="utf-8")
        now = played(before)
        if "--write" in arguments:
            path.write_text(now, encoding="utf-8")
        elif now != before:
            is_red = True
            sys.stdout.writelines(difflib.unified_diff(before.splitlines(True), now.splitlines(True), name, "now"))
    return 1 if is_red else 0


if __name__ == "__main__":
    if "PYTHONHASHSEED" not in os.environ:
        command = [sys.executable, "-m", "simulation.groupplay", *sys.argv[1:]]
        os.execve(sys.executable, command, os.environ | {"PYTHONHASHSEED": "0"})
    sys.exit(main(sys.argv[1:]))
