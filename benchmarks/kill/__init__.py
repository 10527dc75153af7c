"""What bench_kill is made of: agents that announce what they do, a killer, and a checker that trusts neither.

Modules, in the order in which they are best read:

history      what everybody writes down outside of the processes
scripts      what the models say and the tools do
phases       how a process announces what it is doing
application  the agents and objects
breaks       one protection switched off, to show that the checker sees it
plan         which kills, in which order, from a seed
observer     the history as it grows, for the killer
killer       waits for a phase and sends SIGKILL
workload     the callers: turns, writes, alarms
final        what the agents say when everything is quiet
checks       what was lost, doubled or written twice
timings      from a kill to the next new event
"""
