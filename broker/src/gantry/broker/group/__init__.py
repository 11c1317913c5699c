"""What others tell a member of a group (orders, fencing, a handover), and how its role is built around a store."""
