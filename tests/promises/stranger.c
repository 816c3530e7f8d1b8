/* SPDX-License-Identifier: Apache-2.0 */
void stranger_gets_nothing(void);
void stranger_gets_nothing(void)
{
}
