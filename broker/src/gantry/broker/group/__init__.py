"""Orders, fencing and handover of a member, and how its role is built around a store."""
